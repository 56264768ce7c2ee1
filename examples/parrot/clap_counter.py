"""A recogniser that hears only claps, and says how many there were."""

import numpy as np

from reachy_voice.engines import Partial, Transcript

summary = "counts claps"
RATE = 16_000
NUMBERS = ("", "one", "two", "three", "four", "many")


class Options:
    """The section `stt` of the YAML, with its defaults."""

    loud: int = 8000


class ClapCounter:
    rate = RATE
    streams = True
    languages = ("en",)

    def __init__(self, options):
        self.options = options

    def open(self, language, partials):
        return Claps(self.options.loud)


class Claps:
    """One utterance."""

    def __init__(self, loud):
        self.loud = loud
        self.samples = self.count = 0
        self.was_loud = False

    def feed(self, pcm):
        for part in np.array_split(pcm, 1 + len(pcm) // 800):
            is_loud = np.abs(part.astype(int)).max(initial=0) >= self.loud
            self.count += is_loud and not self.was_loud
            self.was_loud = is_loud
        self.samples += len(pcm)
        return Partial(tentative=self.text())

    def finish(self, cancel):
        return Transcript(self.text(), self.samples / RATE)

    def text(self):
        return NUMBERS[min(self.count, len(NUMBERS) - 1)]


def build(options, weights):
    return ClapCounter(options)

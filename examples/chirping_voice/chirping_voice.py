"""A voice that chirps: a sliding tone for each word, higher where a question ends."""

import numpy as np

summary = "chirps, as small robots in films do"
RATE = 24_000


class Options:
    """The section `tts` of the YAML, with its defaults."""

    pitch_hz: float = 700.0
    words_per_minute: int = 160


class ChirpingVoice:
    rate = RATE
    voices = ("bird", "mouse")
    languages = ()

    def __init__(self, options):
        self.options = options

    def synthesize(self, request, cancel):
        """Yields int16 audio, one chunk per word; stops as soon as it is cancelled."""
        octave = 2 if request.voice == "mouse" else 1
        seconds = 60 / (self.options.words_per_minute * request.speed)
        for word in request.text.split():
            if cancel.cancelled:
                return
            start = self.options.pitch_hz * octave * (1 + sum(map(ord, word)) % 7 / 7)
            end = start * (1.6 if word.endswith("?") else 0.8)
            length = int(seconds * RATE * min(len(word), 12) / 6)
            phase = 2 * np.pi * np.cumsum(np.linspace(start, end, length)) / RATE
            yield (8000 * np.sin(phase) * np.hanning(length)).astype(np.int16)


def build(options, weights):
    return ChirpingVoice(options)

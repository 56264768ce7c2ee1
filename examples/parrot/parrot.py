"""A language model that repeats what it is told."""

from reachy_voice.engines import Finished, TextDelta, Usage, Warmed

summary = "repeats the user's words"


class Parrot:
    def open(self):
        return ParrotSession()


class ParrotSession:
    def warm(self, request, cancel):
        """Read ahead: here there is nothing to compute."""
        yield Warmed()

    def reply(self, request, cancel):
        """One word at a time; stops as soon as it is cancelled."""
        said = [message.content for message in request.messages if message.role == "user"]
        words = ["You", "said:", *(said[-1] if said else "nothing").split()]
        allowed = words[: request.sampling.max_tokens]
        for word in allowed:
            if cancel.cancelled:
                return
            yield TextDelta(f"{word} ")
        reason = "stop" if len(allowed) == len(words) else "length"
        yield Finished(reason, Usage(generated=len(allowed)))

    def close(self):
        pass


def build(options, weights):
    return Parrot()

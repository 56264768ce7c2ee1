"""See the package's own description: a stand-in. Imported by qwen-tts, and nothing in it used."""


def fbank(*args: object, **kwargs: object) -> object:
    raise NotImplementedError("this torchaudio is the stand-in that reachy-voice installs on a CPU")

"""A stand-in for torchaudio, installed by reachy-voice on machines without CUDA.

PyPI has torchaudio only for CUDA: beside a torch for CPUs it cannot be imported. qwen-tts imports
it for the codec of its 25 Hz models, which the 12 Hz models that reachy-voice runs never call.
"""

__version__ = "0+stub.of.reachy.voice"


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"torchaudio.{name} is not there: this is the stand-in that reachy-voice installs on a CPU"
    )

"""For running the engines of the settings in a program of your own (examples/audio_server.py)."""

from app.models.engine_set import Engine, engines_alone
from app.models.weights import open_cache
from app.settings.load import load_settings
from hardware.wav import decoded
from pipeline.audio import LISTEN_RATE, Resampler
from pipeline.errors import ReachyVoiceError
from pipeline.work import Work
from pipeline.workers.stages import stt_stage, tts_stage

__all__ = [
    "LISTEN_RATE",
    "Engine",
    "ReachyVoiceError",
    "Resampler",
    "Work",
    "decoded",
    "engines_alone",
    "load_settings",
    "open_cache",
    "stt_stage",
    "tts_stage",
]

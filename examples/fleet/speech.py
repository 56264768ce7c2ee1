"""Recogniser and voice as replicas on Ray Serve, by OpenAI's audio routes.

    serve run examples/fleet/speech.yaml

Each replica is one process with one engine from the settings (``examples/audio_server.py``):
Moonshine or Piper by default; Parakeet or Qwen3-TTS on a GPU with another ``config``. See
docs/fleet.md.
"""

from ray import serve
from ray.serve import Application
from starlette.applications import Starlette

from examples.audio_server import audio_server
from reachy_voice.engines import Kind


def ears(given: dict[str, object]) -> Application:
    return replicas(Kind.STT, **given)


def voice(given: dict[str, object]) -> Application:
    return replicas(Kind.TTS, **given)


def replicas(
    kind: Kind, config: str | None = None, count: int = 2, cpus: float = 1, gpus: float = 0
) -> Application:
    """``cpus`` and ``gpus``: per replica; with half a GPU each, two replicas share one."""

    def app() -> Starlette:
        return audio_server(config, (kind,))

    deployment = serve.deployment(
        serve.ingress(app)(),
        name=kind.value,
        num_replicas=count,
        max_ongoing_requests=4,
        graceful_shutdown_timeout_s=30,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
    )
    return deployment.bind()

"""What goes wrong with the service."""

from __future__ import annotations

from pipeline.errors import ReachyVoiceError


class ServiceError(ReachyVoiceError):
    """The service cannot be installed or removed, or it does not run."""

    exit_code = 24

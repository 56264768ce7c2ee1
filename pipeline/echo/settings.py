"""What the YAML says about echo."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Echo(BaseModel):
    """Whether the assistant's own voice is taken out of what the microphone hears."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cancel: Literal["auto", "never"] = "auto"

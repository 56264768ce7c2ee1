"""What a session remembers: the conversation, and the model's own state of it. It can outlive the
session, for a client that lost its connection and comes back."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.conversation.chat import Chat
from pipeline.engines.stages import ConversationStage


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    chat: Chat
    conversation: ConversationStage

    def close(self) -> None:
        """Forget the model's state; the session will not be resumed."""
        self.conversation.close()

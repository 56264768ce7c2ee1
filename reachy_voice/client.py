"""A client that plays a recording to a server and listens to the answer."""

from app.talk.realtime_client import RATE, NoServer, RealtimeClient, SpokenTurn, TurnFailed, connect

__all__ = ["RATE", "NoServer", "RealtimeClient", "SpokenTurn", "TurnFailed", "connect"]

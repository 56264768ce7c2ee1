"""Engines that are reached by URL: the parts that STT, LLM and TTS share.

They are asynchronous, so they need no worker: their stages live on the event loop.

    Pool        the shared HTTP client, and the only class that uses httpx
    UrlEngine   one engine's life cycle: waits for its server, watches it, closes (like a worker)
    Endpoint    its requests: concurrency limit, time-outs, cancellation, one safe retry
    Family      how servers of one kind differ from others

An engine module defines options, a ``UrlEngine`` and a ``SPEC`` (``registry.UrlEngineSpec``).
If its server goes away, the engine is not ready until a probe finds the server again.
"""

"""Engines that are reached by URL: what those for STT, LLM and TTS have in common.

They are asynchronous, so no worker runs them: their stages live on the event loop.

    Pool        the HTTP client that they share, and the only class that uses httpx
    UrlEngine   one engine's life cycle: waits for its server, watches it, closes (like a worker)
    Endpoint    its requests: concurrency limit, time-outs, cancellation, one safe retry
    Family      how servers of one kind differ from others

An engine module has options, a ``UrlEngine`` and a ``SPEC`` (``registry.UrlEngineSpec``).
A server that goes away makes its engine unready until a probe finds it again.
"""

"""Engines that are reached by URL: what those for speech, words and voice have in common.

They are asynchronous by nature, so no worker runs them: their stages live on the event loop.

    Pool        one HTTP client for all of them, the only place that knows httpx
    UrlEngine   one engine's life: waits for its server, watches it, closes (a worker's place)
    Endpoint    its requests: a place among so many, time-outs, cancelling, one safe repetition
    Family      what servers of one kind do differently

An engine module has options, a stage and a ``SPEC`` (``pipeline.engines.registry.UrlEngineSpec``).
A server that goes away makes its engine unready until a probe finds it again.
"""

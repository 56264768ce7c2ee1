"""Sets up what the settings need, for ``script/serve`` and ``reachy-voice setup``. Standard library
only: in a checkout this runs before anything is installed."""

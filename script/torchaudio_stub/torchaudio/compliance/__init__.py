"""See the package's own description: a stand-in."""

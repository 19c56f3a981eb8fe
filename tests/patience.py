"""How long tests wait for what should happen soon."""

PATIENCE_S = 300.0
"""Seconds: only what hangs takes longer, also on a slow machine that does other work."""

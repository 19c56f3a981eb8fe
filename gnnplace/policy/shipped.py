"""Where the shipped policy is; apart from `checkpoint`, so that naming it does not load torch."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["SHIPPED_POLICY"]

SHIPPED_POLICY = Path(str(files("models_zoo").joinpath("policies", "gnn.safetensors")))
"""What `gnn` begins with unless told otherwise; the card beside it says how it was trained."""

"""What a policy can be trained without."""

from __future__ import annotations

from typing import Literal

__all__ = ["Ablation"]

Ablation = Literal["no-device-features", "no-message-passing", "final-reward"]
"""What is left out, to see what it is worth; a policy without all of it is trained anew."""

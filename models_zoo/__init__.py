"""Recipes that build ONNX workloads, and trained policies with their cards; nothing in `gnnplace` needs them.

In reading order: `networks/`, `policies/`.
"""

__all__: list[str] = []

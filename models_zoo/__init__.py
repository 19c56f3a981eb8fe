"""Recipes that build ONNX workloads; nothing in `gnnplace` needs them.

In reading order: `networks/`.
"""

__all__: list[str] = []

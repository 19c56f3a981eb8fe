"""Recipes that build ONNX workloads: one family per file, the same seed gives the same weights.

In reading order: `light.py`.
"""

__all__: list[str] = []

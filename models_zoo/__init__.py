"""Recipes that build ONNX workloads; `gnnplace` reads them by `zoo:NAME` and needs them for nothing else.

In reading order: `networks/`.
"""

__all__: list[str] = []

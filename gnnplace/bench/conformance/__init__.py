"""ONNX's own test suite for backends: whatever a plain session passes, a placed model passes.

In reading order: `compare.py` (one case, plain and placed), `isolated.py` (a process that may crash), `suite.py` (all cases).
"""

__all__: list[str] = []

"""ONNX enters and leaves the library here and nowhere else: read, shapes, costs per op, annotate, split.

In reading order:

- `read.py`: any model file as an `OnnxModel`;
- `model.py`: the normalised model and its op graph, op by op the same;
- `normalise/`: the same model, easier to place;
- `shapes/`: every tensor at concrete dimensions;
- `op_costs/`: FLOPs and moved bytes of one node;
- `signature.py`: what a node does and on which shapes, as one string;
- `conversion.py`: from nodes and shapes to the op graph;
- `segments.py`: which ops a device runs in one go, and in which order;
- `split.py`: a model file for each part;
- `annotate.py`: the placement written into the model, as ONNX's own annotation and as metadata;
- `manifest.py`: what a folder of parts holds.
"""

__all__: list[str] = []

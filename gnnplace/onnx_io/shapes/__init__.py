"""Shape and dtype of every tensor at concrete dimensions, and the values of small integer tensors.

In reading order:

- `tensor_info.py`: one tensor, and the sizes of symbolic dimensions;
- `node_types.py`: ONNX's own inference for one node, and types that the model does not state;
- `control_flow.py`: subgraphs of If, Loop and Scan, and their trip counts;
- `inference.py`: inference from the inputs through the graph, node by node, with a fallback where ONNX has no answer.
"""

__all__: list[str] = []

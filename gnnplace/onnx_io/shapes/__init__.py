"""The shape and dtype of every tensor at concrete dimensions, and the values of small ones.

In reading order:

- `tensor_info.py`: what is known of one tensor;
- `dimensions.py`: the number that each symbolic dimension stands for;
- `node_types.py`: ONNX's own inference for one node, and the types that a model does not state;
- `control_flow.py`: the subgraphs of If, Loop and Scan, and how often they run;
- `inference.py`: from the inputs through the graph, node by node, with a fallback where ONNX cannot tell.
"""

__all__: list[str] = []

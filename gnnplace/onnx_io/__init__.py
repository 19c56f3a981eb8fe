"""ONNX enters and leaves the library here and nowhere else: read, shapes, costs per op, annotate, split.

This folder imports no runtime. In reading order:

- `read.py`: any model file as an `OnnxModel`;
- `model.py`: the normalised model with its op graph; stages, colocation groups and state in a model's metadata;
- `checks.py`: rules that a model file must keep;
- `element_types.py`, `value_types.py`: element types, map types, and types as ONNX Runtime writes them;
- `normalise.py`, `folding.py`: inlined functions, folded constants, unique node names;
- `shapes/`: shape and dtype of every tensor at concrete dimensions;
- `op_costs/`: FLOPs and moved bytes of one node;
- `conversion.py`: from nodes and shapes to the op graph;
- `run_order.py`: the order in which a runtime runs nodes, and how a file lists them for a wanted one;
- `segments.py`: runs of ops that a device executes without exchanging values;
- `external_data.py`: weights in files of their own, which are copied as they are;
- `part.py`: a model for one device, and its inputs and outputs;
- `spelling.py`: one spelling for what files write in several ways;
- `shape_ops.py`: ops that compute with shapes;
- `split.py`: one model file per segment;
- `annotate.py`: the placement inside a model file;
- `manifest.py`: the description of a folder of parts;
- `kernels.py`: an optimised model, and the ops that each of its kernels executes;
- `sample_inputs.py`: generated inputs that a model accepts, and models from text;
- `busy_op.py`: an op of a chosen length, to try measurements on.
"""

__all__: list[str] = []

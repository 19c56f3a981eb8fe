"""ONNX enters and leaves the library here and nowhere else: read, shapes, costs per op, annotate, split.

In reading order:

- `read.py`: any model file as an `OnnxModel`;
- `element_types.py`: names, dtypes and bytes of element types, of those that numpy lacks too;
- `model.py`: the normalised model and its op graph, op by op the same;
- `checks.py`: what a model must keep to before anything is made of it;
- `map_types.py`: the one kind of type that onnx-ir does not have;
- `tensor_checks.py`: the same for its tensors;
- `metadata.py`: what a model file says about its own placement;
- `normalise/`: the same model, easier to place;
- `shapes/`: every tensor at concrete dimensions;
- `op_costs/`: FLOPs and moved bytes of one node;
- `conversion.py`: from nodes and shapes to the op graph;
- `constant_ops.py`: ops that give the same in every run;
- `segments.py`: what a device runs between two exchanges with others;
- `external_data.py`: weights in files of their own, referred to and never rewritten;
- `split.py`: a model file for each part;
- `untyped.py`: values whose type a runtime has to tell;
- `annotate.py`: the placement written into the model, as ONNX's own annotation and as metadata;
- `annotation.py`: the placement read from such a model;
- `manifest.py`: what a folder of parts holds;
- `light_copy.py`: the model with its weights outside, for cutting it again and again;
- `sample_inputs.py`: made-up inputs that the model accepts;
- `kernels.py`: which op a kernel of a runtime's optimised model stands for;
- `probe.py`: the smallest model, for measuring calls and handovers;
- `text.py`: models written as text.
"""

__all__: list[str] = []

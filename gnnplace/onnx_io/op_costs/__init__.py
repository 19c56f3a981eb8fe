"""FLOPs and moved bytes of one node by op type: tables, and rules where a number per element does not suffice.

An addition, a multiplication, a comparison and an elementary function (exp, sqrt, tanh, ...) count as 1 FLOP each, so a
multiply-accumulate counts as 2. Moved bytes are read and written once each, weights included.

In reading order:

- `call.py`: a node with its tensors, which every rule takes;
- `elementwise.py`: FLOPs per output element, and moved bytes of operators that copy, gather or view;
- `matrix.py`: convolutions, matrix products, attention and recurrent layers;
- `reduction.py`: reductions, normalisations, pooling, resizing, sorting, transforms;
- `contributed.py`: operators that ONNX Runtime adds, as optimised and quantised models have them;
- `estimators.py`: trees, linear models and support vectors (`ai.onnx.ml`);
- `node_cost.py`: all tables together, the default, the bodies of If, Loop and Scan, and signatures.
"""

__all__: list[str] = []

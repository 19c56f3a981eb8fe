"""FLOPs and moved bytes of one node, by op type: tables, and a rule where a table cannot say it.

An addition, a multiplication, a comparison and an elementary function (exp, sqrt, tanh, ...) count as 1 FLOP each, so a
multiply-accumulate is 2. Moved bytes are what has to be read and written once, weights included.

In reading order:

- `call.py`: a node with the tensors it reads and writes, which is what the rules are given;
- `elementwise.py`: FLOPs per output element;
- `data_movement.py`: what copies, gathers or only looks at its input differently;
- `matrix.py`: convolutions, matrix products and their quantised forms;
- `sequence.py`: attention and recurrent layers;
- `reduction.py`: reductions, normalisations, pooling, resizing, sorting, transforms;
- `node_cost.py`: the tables joined, the default for what is in none, and If, Loop and Scan through their bodies;
- `signature.py`: one string for what a node does and on which shapes: equal signatures cost the same.
"""

__all__: list[str] = []

"""Recipes that build ONNX workloads: one family per file, the same seed gives the same weights.

In reading order:

- `recipe.py`: what a recipe is, and what it makes;
- `catalog.py`: the families, and which of them are held out from training;
- `papers/`: the workloads of the papers on device placement;
- `branched/`: networks that are wide;
- `transformers/`: the networks of today;
- `control_flow/`: ONNX's own constructs, and models as they were written years ago;
- `generated/`: random op graphs;
- `light.py`: the networks that come with the `onnx` package;
- `export/`: from a torch network to ONNX that computes the same;
- `build.py`: a recipe's files;
- `shipped.py`: the manifest, and the op graphs in `structures/`;
- `zoo_name.py`: what stands after `zoo:`;
- `publish.py`: builds all at published size, and writes what ships.
"""

__all__: list[str] = []

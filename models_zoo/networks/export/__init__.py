"""From a network to an ONNX file that is known to compute the same.

In reading order:

- `inference.py`: the forward pass of a torch network;
- `decompositions.py`: backward ops in terms of ops that ONNX has;
- `training_step.py`: loss, gradients and update of a torch network;
- `optimizers.py`: the update, written in ONNX;
- `stages.py`: which stage of the human placement each op belongs to;
- `comparison.py`: the numbers of the ONNX model beside those of torch.
"""

__all__: list[str] = []

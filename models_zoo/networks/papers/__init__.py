"""The workloads of the papers on device placement.

- `rnnlm.py`: a recurrent language model;
- `nmt.py`: translation with attention;
- `ptb_cells.py`: language models with random recurrent cells;
- `inception_v3.py`: Inception-V3, blocks of parallel convolutions;
- `resnet.py`: residual networks;
- `cifar_cells.py`: image networks of random cells.
"""

__all__: list[str] = []

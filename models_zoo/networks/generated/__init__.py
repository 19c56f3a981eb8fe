"""Op graphs with random costs, many of them drawn at random, from 20 to 200,000 ops; they have costs and no ONNX.

In reading order:

- `structure.py`: ops and edges without costs, and what the families share;
- `costs.py`: work, bytes and weights of the ops, so that communication takes the wished share;
- `layered.py`: layers of random width (Topcuoglu et al. 2002);
- `series_parallel.py`: blocks one after the other or side by side, within each other;
- `fork_join.py`: equal branches between forks and joins;
- `random_dag.py`: random edges within levels (daggen) or within an order (Erdos and Renyi);
- `wavefront.py`: a grid in which every op waits for its neighbours;
- `factorization.py`: tiled Cholesky, LU and QR factorisations;
- `elimination.py`: Gaussian elimination;
- `butterfly.py`: fast Fourier transforms;
- `workflow.py`: scientific workflows;
- `multipole.py`: fast multipole methods;
- `stencil.py`: time steps over a ring of blocks;
- `towers.py`: an ONNX file of any size;
- `widened.py`: a graph several times side by side;
- `sampling.py`: a graph of a random family with random settings, to train on.
"""

__all__: list[str] = []

"""A placed model that runs: needs numpy, onnx and ONNX Runtime, never torch, dgl or networkx; with numba it runs faster.

In reading order:

- `session.py`: `gnnplace.Session`, a placed model behind the methods of ONNX Runtime's session, and training loops;
- `feed.py`: input arrays, checked against the model's declarations; `.npz` files;
- `runner.py`: one request at a time, several pipelined, or a future;
- `dataflow.py`: the steps of each device, and the values that they wait for, send and release;
- `pipeline.py`: several devices with a thread each, or one device on the calling thread;
- `compiled/`: the same on CPU cores, in threads outside the interpreter lock, where numba is installed;
- `exclusive.py`: devices that share cores or multiprocessors, and who computes next;
- `worker.py`: one device, with a second thread that copies to and from a GPU's memory;
- `optimised.py`: a model as ONNX Runtime optimises it for this CPU;
- `part_session.py`: the ONNX Runtime session of one part;
- `values.py`: values of ONNX Runtime and of numpy, on the host and on GPUs;
- `pinned_memory.py`: page-locked memory for copies from GPUs;
- `devices.py`: pinning, session options, provider options, and the check that no op runs elsewhere;
- `gpu_streams.py`: the CUDA streams that sessions share, and slices of GPUs;
- `cuda_libraries.py`: CUDA and cuDNN from pip packages;
- `onnx_backend.py`: placed models behind ONNX's interface for backends.
"""

__all__: list[str] = []

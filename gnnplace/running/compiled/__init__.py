"""Parts on CPU cores outside Python's interpreter lock: ONNX Runtime's C interface, driven by compiled threads.

`c_api` makes sessions and tensors, `book` says what threads share and `tables` makes it, `primitives` are atomic operations and futexes, `loop` is what each thread runs, compiled
by numba, `values` are inputs and outputs of requests, and `devices` offers all of it as the devices of a placed model; `volley` tells
how near two cores are. Without numba, or with values other than tensors of numbers, `running` uses its Python loop.
"""

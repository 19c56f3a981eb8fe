"""Features of ONNX itself: control flow, shapes that depend on the data, integer weights, old files.

In reading order:

- `graph_writer.py`: ONNX nodes in order, bodies of loops included;
- `if_branch.py`: an early exit by `If`;
- `scan_rnn.py`: recurrent layers by `Scan`;
- `loop_decoder.py`: a greedy decoder by `Loop`;
- `detection.py`: a detector with `NonMaxSuppression`;
- `qdq.py`: integer weights between `QuantizeLinear` and `DequantizeLinear`;
- `opset9.py`: a file as exporters wrote it in 2018.
"""

__all__: list[str] = []

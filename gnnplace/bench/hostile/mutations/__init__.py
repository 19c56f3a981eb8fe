"""What is done to a file: the same random generator, the same damage.

In reading order: `hostile.py` (numbers and names that break things), `raw.py` (bytes of any file), `json_text.py` (values of a JSON
document), `protobuf.py` (fields of an ONNX file), `containers.py` (files inside files: gzip, npz, safetensors), `mutant.py` (picks a
file and what is done to it).
"""

__all__: list[str] = []

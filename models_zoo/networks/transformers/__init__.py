"""Transformers, and one state-space model, at the sizes of the `transformers` library's configurations.

In reading order:

- `bert.py`: an encoder;
- `decoding.py`: a prompt, then token after token, with the key-value cache as plain tensors;
- `gpt2.py`: a decoder in training, reading a prompt, and decoding token after token;
- `llama.py`: a decoder with rotary positions, grouped queries and gated layers;
- `t5.py`: an encoder and a decoder with relative positions;
- `vit.py`: an encoder of image patches;
- `swin.py`: an image encoder in windows that shift and merge;
- `whisper.py`: an encoder of sound and a decoder of text;
- `mamba.py`: a state-space model, which has a recurrence in place of attention.
"""

__all__: list[str] = []

"""Networks that are wide: branches, towers and experts that can run at the same time.

In reading order:

- `ensemble.py`: members that see the same input and are averaged;
- `two_tower.py`: encoders of two inputs, with the same weights or with their own;
- `dlrm.py`: click ranking with a table per feature, and with experts and towers for several tasks;
- `moe.py`: a transformer whose tokens are routed to experts;
- `nasnet.py`: cells that a search found;
- `unet.py`: the denoising network of a latent diffusion model.
"""

__all__: list[str] = []

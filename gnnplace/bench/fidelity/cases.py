"""Models whose placements are simulated and executed, and the device sets they run on."""

from __future__ import annotations

from dataclasses import dataclass

from gnnplace.devices.detect import multiprocessors
from gnnplace.running.devices import cuda_is_offered

__all__ = ["MODELS", "Case", "device_sets"]

MODELS = (
    "light_squeezenet",
    "light_shufflenet",
    "light_inception_v1",
    "light_inception_v2",
    "inception_v3:batch=1",
    "nasnet_mobile:batch=2",
    "cifar_cell_00:batch=8",
    "ensemble_cnn:batch=2",
    "ensemble_mlp",
    "dlrm_towers:batch=64",
    "nmt_2:batch=16:hidden=512:steps=6:vocabulary=4000",
    "ptb_cell_00:batch=8",
    "bert_base:layers=2:batch=1",
)
"""Of the zoo, with batches and depths so small that a step takes about a tenth of a second or less on one core."""


@dataclass(frozen=True)
class Case:
    """One model on one device set."""

    model: str
    devices: str
    seed: int
    """Of the placements."""


def device_sets() -> tuple[str, ...]:
    """Two cores; and where ONNX Runtime can use a GPU, that with a core, and halves of it."""
    if not cuda_is_offered():
        return ("cpu:0,cpu:1",)
    half = (multiprocessors(0) or 2) // 2
    return ("cpu:0,cpu:1", "cpu:0,cuda:0", f"cuda:0[sms={half}],cuda:0[sms={half},slice=1]")

"""What there are records of: the papers' rows, the development cases of the generalization bench, and graphs of the zoo.

Sealed graphs and device sets are not among them, as nobody looks at results on those.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from gnnplace.api import ProblemSetup, Workload
from gnnplace.bench.generalization.cases import CASES, HeldOutCase
from gnnplace.bench.generalization.devices import held_out_devices
from gnnplace.bench.generalization.run import setup_of_case
from gnnplace.bench.papers.tables import SEEDS_ROWS, SPOTLIGHT_ROWS, setup_of_row
from gnnplace.cost.cost_model import RooflineCost
from models_zoo.networks.shipped import read_structure

_ZOO = (
    ("alexnet_2018", "k40x2"), ("bert_base", "v100x4"), ("bert_base:training", "k40x4"), ("bert_large", "a100x4"),
    ("bert_large", "epyc-corex4"), ("cifar_cell_00", "epyc-corex4"), ("cifar_cell_05:training", "p100x4"),
    ("cifar_cell_09", "k40x4"), ("cifar_cell_17:training", "v100x8"), ("deep_speech_7", "k40x2"), ("dlrm", "cpus-6"),
    ("dlrm_towers", "v100x4"), ("early_exit", "phone-3"), ("ensemble_cnn", "k40x4"), ("ensemble_cnn:training", "a100x8"),
    ("ensemble_mlp", "servers-2x4"), ("ensemble_mlp:training", "k80x4"), ("fork_join_200", "k40x4"),
    ("fork_join_2000", "v100x8"), ("fork_join_200_narrow", "ring-8"), ("gpt2", "v100x2"), ("gpt2:training", "k40x4"),
    ("gpt2_decode", "p100x4"), ("gpt2_prefill", "phone-3"), ("layered_200", "k40x4"), ("layered_200_wide", "servers-4x4"),
    ("layered_2000", "v100x8"), ("layered_2000_tall", "k40x4"), ("inception_v3", "epyc-corex32"),
    ("inception_v3", "ethernet-4"), ("llama_decode", "a100x4"), ("llama_prefill", "servers-2x4"), ("mamba_130m", "p100x4"),
    ("mobilenet_int8", "cores-4+4"), ("moe_8", "v100x8"), ("moe_8", "epyc-corex32"), ("nasnet_large", "v100x4"),
    ("nasnet_mobile", "epyc-corex4"), ("nasnet_mobile", "k40x2"), ("nmt_4", "v100x4"), ("nmt_2", "cpus-6"),
    ("ptb_cell_00", "epyc-corex4"), ("ptb_cell_07:training", "k40x4"), ("ptb_cell_13", "cpus-6"),
    ("ptb_cell_22:training", "v100x4"), ("random_dag_200", "k40x4"), ("random_dag_2000", "servers-4x4"),
    ("random_ordered_200", "p100x8"), ("random_ordered_2000", "k80x8"), ("resnet_101", "k40x4"),
    ("resnet_50:training", "servers-2x4"), ("rnnlm_4", "v100x4"), ("rnnlm_8:training", "k40x8"),
    ("series_parallel_200", "k40x4"), ("series_parallel_200_wide", "old-gpus-7"), ("series_parallel_2000", "v100x8"),
    ("ssd_300", "epyc-corex4"), ("swin_tiny", "v100x4"), ("t5_small", "ring-8"), ("t5_base", "a100x8"),
    ("two_tower_siamese", "k40x4"), ("two_tower_retrieval:training", "cpus-6"), ("unet_diffusion", "a100x4"),
    ("vit_base", "phone-3"), ("vit_base:training", "v100x4"), ("wavefront_16x16", "v100x8"), ("wavefront_8x64", "k40x4"),
    ("whisper_base", "ring-8"), ("whisper_tiny", "k40x2"),
)  # fmt: skip
"""Graphs of the zoo and device sets, with the costs of the roofline; sets of cores (`epyc-core`) share the cores."""


@dataclass(frozen=True, eq=False)
class RecordCase:
    """One graph on one device set."""

    name: str
    graph: str
    """Name of a graph, as the bench that the case is from has it."""
    devices: str
    """Name of a device set, or of the record where memory differs from that of the set."""
    build: Callable[[], ProblemSetup]
    max_groups: int | None = None
    """Number of op groups; None where planners choose."""
    type_spread: float = 0.0
    type_seed: int = 0


@cache
def record_cases() -> Mapping[str, RecordCase]:
    """All cases by the names of their records."""
    cases: list[RecordCase] = []
    for row in (*SEEDS_ROWS, *SPOTLIGHT_ROWS):
        graph, memory = row.workload.removeprefix("zoo:"), row.memory_share
        name = _name(graph, row.devices, "" if memory is None else "-small")
        devices = row.devices if memory is None else name
        cases.append(RecordCase(name, graph, devices, partial(setup_of_row, row.key)))
    for case in CASES:
        name = record_of(case)
        devices, seed = case.devices if case.memory_share is None else name, zlib.crc32(case.name.encode())
        build = partial(setup_of_case, case.name)
        cases.append(RecordCase(name, case.graph, devices, build, case.max_groups, case.type_spread, seed))
    cases += [RecordCase(_name(*two), *two, partial(_setup_of_zoo, *two)) for two in _ZOO]
    return {case.name: case for case in cases}


def record_of(case: HeldOutCase) -> str:
    """Name of the record of a development case."""
    return _name(case.graph, case.devices, "" if case.memory_share is None else "-small")


def _name(graph: str, devices: str, ending: str = "") -> str:
    return f"{graph.replace(':', '.')}-{devices}{ending}"


def _setup_of_zoo(graph: str, devices: str) -> ProblemSetup:
    return ProblemSetup.build(Workload.of(read_structure(graph)), held_out_devices(devices), RooflineCost())

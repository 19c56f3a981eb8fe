"""Names of devices that can run a model, and the provider and options of ONNX Runtime that each stands for.

    cpu:K  cpu:A-B  cpu:A+B               one core, sets of cores
    cpu:A-B[spinning=1,parallel=1]        the set with other options of its session
    cuda:K                                a GPU
    cuda:K[sms=66,slice=0]                the first group of 66 streaming multiprocessors of a GPU; slice=1 is the next
    ep:NAME:ID                            device ID of ONNX Runtime's provider NAME; for TensorRT a GPU, as ep:TensorRT:0
    HOST/cpu:K  HOST/cuda:K  ...          the same on the machine HOST

Options in brackets are separated by commas. This module reads `memory` (the device's capacity, and on a GPU the limit of
each session's arena), `cores` (`cuda`, `ep`: cores of the calling thread, `cores=1` or `cores=0-3`), `sms`, `slice` and
`own_stream` (`cuda`: with `own_stream=1` each session has a stream of its own, as is ONNX Runtime's default). Sets of cores have
two more: with `spinning=1` idle threads of a session use their cores while it runs, as is ONNX Runtime's default; with
`parallel=1` ops that do not depend on each other run at the same time (`ORT_PARALLEL`). All other options go to the provider.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Literal

from gnnplace.errors import InvalidTopology
from gnnplace.units import parse_bytes

CPU_PROVIDER, CUDA_PROVIDER, _SUFFIX = "CPUExecutionProvider", "CUDAExecutionProvider", "ExecutionProvider"

_NO_DEVICES = (CPU_PROVIDER, CUDA_PROVIDER, "AzureExecutionProvider")
"""Providers whose devices have other names, or which run no ops here."""
_ON_CORES = ("OpenVINO",)
"""Providers whose threads stay on the cores in a device's name."""
_ON_NVIDIA_GPUS = ("Tensorrt", "NvTensorRTRTX")
"""Providers whose devices are NVIDIA GPUs, numbered as CUDA numbers them."""

_PROVIDERS = (
    "CPU", "CUDA", "OpenVINO", "Tensorrt", "NvTensorRTRTX", "MIGraphX", "ROCM", "CoreML", "Dml", "Dnnl", "QNN", "Xnnpack",
)  # fmt: skip
"""ONNX Runtime's spelling of providers, which a device's name may write in other cases."""

_HOST = r"(?:(?P<host>[^\s/,\[\]]+)/)?"
_CORES = r"[0-9]+(?:-[0-9]+)?(?:\+[0-9]+(?:-[0-9]+)?)*"
_NAME = re.compile(
    _HOST + rf"(?:cpu:(?P<cores>{_CORES})|cuda:(?P<gpu>[0-9]{{1,5}})|ep:(?P<provider>\w+):(?P<id>[^\[\],\s]+))"
    r"(?:\[(?P<options>[^\[\]]*)\])?"
)
_BETWEEN = re.compile(r",(?![^\[]*\])")  # a comma outside brackets
_BEGINNING = re.compile(_HOST + r"(?:cpu|cuda|ep):")
_DIGITS = 5  # at most, of the index of a core, GPU or slice
_CORE_SET_OPTIONS = ("spinning", "parallel")
_CUDA_GRAPHS = ("enable_cuda_graph", "trt_cuda_graph_enable")
_REFUSED = {
    **dict.fromkeys(_CUDA_GRAPHS, "a CUDA graph replays one set of buffers, and parts get new ones at every run"),
    "peer": "values cross from GPU to GPU through the host",
    "user_compute_stream": "gnnplace makes the streams that sessions share",
    "device_id": "it is in the device's name",
}
"""Options of providers on NVIDIA's GPUs that cannot be set, except to turn a CUDA graph off, and why."""
_FORMS = "write cpu:K, cpu:A-B with A < B, cuda:K, cuda:K[sms=N,slice=I] or ep:NAME:ID[key=value,...], on another host HOST/cpu:K"


@dataclass(frozen=True)
class RealDevice:
    """A device that runs sessions: cores of a machine, a GPU, a slice of one, or a device of another provider."""

    name: str
    provider: str = CPU_PROVIDER
    """ONNX Runtime's execution provider."""
    device_id: str = ""
    """The provider's name of the device; empty for cores."""
    cores: tuple[int, ...] = ()
    """Cores of the thread that calls a session, and of all CPU kernels."""
    memory_bytes: int | None = None
    """Capacity stated in the name."""
    sms: int | None = None
    """Number of streaming multiprocessors of a slice; None: the whole GPU."""
    slice: int = 0
    """Index of the slice."""
    own_stream: bool = False
    """Whether each session on the GPU has a stream of its own, instead of one that all share."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the provider; of a set of cores those that are on."""
    host: str = ""
    """Name of the machine in a cluster; empty: this machine."""

    @property
    def family(self) -> Literal["cpu", "cuda", "ep"]:
        """ONNX Runtime's CPU provider, an NVIDIA GPU, or another provider."""
        return "cpu" if self.provider == CPU_PROVIDER else "cuda" if self.provider == CUDA_PROVIDER else "ep"

    @property
    def short_provider(self) -> str:
        """The provider's name without the word that all of them end with."""
        return self.provider.removesuffix(_SUFFIX)

    @property
    def spinning(self) -> bool:
        """Whether idle threads of a set of cores use their cores while a session runs."""
        return self.family == "cpu" and "spinning" in self.options

    @property
    def parallel(self) -> bool:
        """Whether a set of cores runs ops that do not depend on each other at the same time."""
        return self.family == "cpu" and "parallel" in self.options

    @property
    def gpu(self) -> int | None:
        """CUDA's index of the GPU of a `cuda` device."""
        return int(self.device_id) if self.family == "cuda" else None

    @property
    def nvidia_gpu(self) -> int | None:
        """CUDA's index of the GPU that the device computes on, by CUDA or another provider; None if it is on none."""
        is_on_one = self.family == "cuda" or self.short_provider in _ON_NVIDIA_GPUS
        return int(self.device_id) if is_on_one and self.device_id.isdecimal() else None

    @property
    def on_host(self) -> bool:
        """True if the device computes on CPU cores, in main memory."""
        return self.family == "cpu" or self.device_id.upper() == "CPU"


def means_real_devices(text: str) -> bool:
    """True if a text of `--devices` begins like a real device."""
    return _BEGINNING.match(text) is not None


def host_of(name: str) -> str:
    """The host in a device's name; empty if it has none."""
    match = _BEGINNING.match(name)
    return "" if match is None else match["host"] or ""


def split_names(text: str) -> list[str]:
    """The device names of a list, split at commas outside brackets."""
    return [name.strip() for name in _BETWEEN.split(text)]


def all_core_sessions(names: Iterable[str]) -> list[str]:
    """The names of sessions over all cores of a device set, with and without each option; none for a single core.

    >>> all_core_sessions(["cpu:0", "cpu:1", "cuda:0"])
    ['cpu:0-1', 'cpu:0-1[spinning=1]', 'cpu:0-1[parallel=1]', 'cpu:0-1[spinning=1,parallel=1]']
    """
    of_host: dict[str, set[int]] = defaultdict(set)
    for real in map(parse_real, names):
        if real.family == "cpu":
            of_host[f"{real.host}/" if real.host else ""].update(real.cores)
    options = ("", "[spinning=1]", "[parallel=1]", "[spinning=1,parallel=1]")
    return [
        f"{host}cpu:{_core_text(sorted(cores))}{option}"
        for host, cores in of_host.items() if len(cores) > 1 for option in options
    ]  # fmt: skip


def core_sets(cores: Sequence[int], others: Iterable[Collection[int]] = ()) -> list[str]:
    """Names of sets of cores that an op may run on: aligned ones of 2, 4, 8, ... cores, `others`, and all, smallest first.

    Their threads spin while a part runs, which is faster where parts are short.

    >>> core_sets([0, 1, 2, 3, 6, 7])
    ['cpu:0-1[spinning=1]', 'cpu:2-3[spinning=1]', 'cpu:6-7[spinning=1]', 'cpu:0-3[spinning=1]', 'cpu:0-3+6-7[spinning=1]']
    """
    sizes = takewhile(lambda size: size < len(cores), (2**power for power in count(1)))
    aligned = [cores[at : at + size] for size in sizes for at in range(0, len(cores) - size + 1, size)]
    known = [sorted(set(other) & set(cores)) for other in others]
    found = {tuple(one): None for one in (*aligned, *known, cores) if len(one) > 1}
    return [cores_together(one) for one in sorted(found, key=len)]


def cores_together(cores: Sequence[int]) -> str:
    """The name of a device over all of these cores, whose threads spin while a part runs; of the core if there is one.

    >>> cores_together([0, 1, 3]), cores_together([2])
    ('cpu:0-1+3[spinning=1]', 'cpu:2')
    """
    return f"cpu:{_core_text(cores)}" + ("[spinning=1]" if len(cores) > 1 else "")


def provider_devices(providers: Iterable[str], sets: Sequence[str], gpus: int) -> list[str]:
    """Names of the devices of ONNX Runtime's providers that have no names of their own here.

    A provider on CPU cores has a device for each of `sets`, names of cores and sets of cores; one for NVIDIA GPUs has a device on
    each GPU; any other one has its first device.

    >>> provider_devices(["OpenVINOExecutionProvider", "CPUExecutionProvider"], ["cpu:0", "cpu:0-1[spinning=1]"], 0)
    ['ep:OpenVINO:CPU[cores=0]', 'ep:OpenVINO:CPU[cores=0-1]']
    """
    found = []
    for provider in (name.removesuffix(_SUFFIX) for name in providers if name not in _NO_DEVICES):
        if provider in _ON_CORES:
            found += [f"ep:{provider}:CPU[cores={_core_text(parse_real(name).cores)}]" for name in sets]
        else:
            found += [f"ep:{provider}:{index}" for index in range(gpus if provider in _ON_NVIDIA_GPUS else 1)]
    return found


def _core_text(cores: Sequence[int]) -> str:
    """`0-3` of consecutive cores, else `0+2` or `0-3+6-7`."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def parse_real(name: str) -> RealDevice:
    """The device of a name; the machine may lack it.

    Raises:
        InvalidTopology: the name has another form, or an option is invalid.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InvalidTopology(f"device {name!r} does not exist on this machine; {_FORMS}")
    host = match["host"] or ""
    options = _options(name, match["options"])
    memory = options.pop("memory", None)
    try:
        memory_bytes = None if memory is None else parse_bytes(memory)
    except ValueError as error:
        raise InvalidTopology(f"device {name!r}: memory={error}") from None
    if match["cores"] is not None:
        cores = _cores(name, match["cores"])
        on = {key: "1" for key in _CORE_SET_OPTIONS if len(cores) > 1 and _number(name, options, key)}
        if options:
            has = "a set of cores has memory, spinning and parallel" if len(cores) > 1 else "it has memory"
            raise InvalidTopology(f"device {name!r}: a core has no option {next(iter(options))!r}; {has}")
        return RealDevice(name, cores=cores, memory_bytes=memory_bytes, options=on, host=host)
    stated = options.pop("cores", None)
    cores = () if stated is None else _cores(name, stated)
    if match["gpu"] is None:
        word = match["provider"].removesuffix(_SUFFIX)
        provider = next((known for known in _PROVIDERS if known.lower() == word.lower()), word) + _SUFFIX
        if provider in {CPU_PROVIDER, CUDA_PROVIDER}:
            raise InvalidTopology(f"device {name!r}: this provider has names of its own; write cpu:K or cuda:K")
        device_id = match["id"]
        if provider.removesuffix(_SUFFIX) in _ON_NVIDIA_GPUS:
            gpu = re.fullmatch(r"(?:GPU\b\.?)?([0-9]{0,5})", device_id, re.IGNORECASE)
            if gpu is None:
                raise InvalidTopology(
                    f"device {name!r}: this provider's devices are GPUs; write ep:{match['provider']}:0"
                )
            device_id = str(int(gpu[1] or 0))
            _check_options(name, options)
        return RealDevice(name, provider, device_id, cores, memory_bytes, options=options, host=host)
    _check_options(name, options)
    sms, index, own = (_number(name, options, key) for key in ("sms", "slice", "own_stream"))
    if sms == 0 or (sms is None and index is not None):
        raise InvalidTopology(f"device {name!r}: a slice needs its streaming multiprocessors, for example sms=66")
    return RealDevice(
        name, CUDA_PROVIDER, str(int(match["gpu"])), cores, memory_bytes, sms, index or 0, bool(own), options, host
    )


def _check_options(name: str, options: Mapping[str, str]) -> None:
    for key, reason in _REFUSED.items():
        if key in options and not (key in _CUDA_GRAPHS and options[key].lower() in ("0", "false")):
            raise InvalidTopology(f"device {name!r}: {key} cannot be set: {reason}")


def _options(name: str, text: str | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in () if text is None else text.split(","):
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not (key and equals and value) or key in found:
            raise InvalidTopology(f"device {name!r}: {entry.strip()!r} is no option; write key=value, each key once")
        found[key] = value
    return found


def _cores(name: str, text: str) -> tuple[int, ...]:
    """The cores of a text such as `1`, `0-3` or `0+2`, in ascending order."""
    if re.fullmatch(_CORES, text) is None:
        raise InvalidTopology(f"device {name!r}: cores={text} is no set of cores; write cores=1 or cores=0-3")
    if max(map(len, re.split("[-+]", text))) > _DIGITS:
        raise InvalidTopology(f"device {name!r}: the index of a core has at most {_DIGITS} digits; {_FORMS}")
    cores: set[int] = set()
    for entry in text.split("+"):
        first, _, last = entry.partition("-")
        found = range(int(first), int(last or first) + 1)
        if not found:
            raise InvalidTopology(f"device {name!r} is an empty set of cores; write the smaller core first")
        cores.update(found)
    return tuple(sorted(cores))


def _number(name: str, options: dict[str, str], key: str) -> int | None:
    text = options.pop(key, None)
    if text is not None and not (text.isdecimal() and len(text) <= _DIGITS):
        raise InvalidTopology(f"device {name!r}: {key}={text} is no whole number of up to {_DIGITS} digits")
    return None if text is None else int(text)

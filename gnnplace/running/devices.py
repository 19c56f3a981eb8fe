"""ONNX Runtime sessions on real devices: pinned threads, session and provider options, and a check of the assignment."""

import ctypes
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import onnxruntime as ort

from gnnplace.devices.detect import allowed_cores, pinned_to
from gnnplace.devices.real_names import RealDevice, parse_real
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidTopology, MeasurementFailed, MissingDependency
from gnnplace.onnx_io.shape_ops import shape_ops
from gnnplace.running.cuda_libraries import load_cuda_libraries, remedy
from gnnplace.running.gpu_streams import device_stream

_GET_CPU = getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None
_ERRORS_ONLY, FATAL_ONLY = 3, 4  # ONNX Runtime's log levels
_OPENVINO = "OpenVINOExecutionProvider"
_PACKAGES = {"CUDAExecutionProvider": "onnxruntime-gpu", _OPENVINO: "onnxruntime-openvino"}

# Ops that usually compute with shapes; `onnx_io.shape_ops` finds others in the model. The CUDA provider leaves them to the CPU on purpose,
# where their operands of a few integers are needed; any other op is on the CPU because the GPU cannot run it. ONNX Runtime reports op types only, so the check also
# accepts one of these ops when CUDA has no kernel for its element type. A provider on CPU cores may leave them, and the
# tests that masks consist of, to the same cores: OpenVINO does so where nothing else is left in a part, and with all of IsNaN.
_SHAPE_OPS = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape", "CumSum", "Div", "Equal", "Expand",
    "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual",
    "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "Or", "Pad", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd",
    "ReduceSum", "Reshape", "Round", "ScatterElements", "ScatterND", "Shape", "Sign", "Size", "Slice", "Split", "Sqrt", "Squeeze",
    "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
})  # fmt: skip
_MASK_OPS = frozenset({"IsInf", "IsNaN"})


def cuda_is_offered() -> bool:
    """The installed ONNX Runtime has a CUDA provider."""
    return "CUDAExecutionProvider" in offered_providers()


def offered_providers() -> list[str]:
    """The execution providers of the installed ONNX Runtime."""
    return list(ort.get_available_providers())


def is_real(topology: Topology) -> bool:
    """The names of all devices stand for hardware that can run a model."""
    with suppress(InvalidTopology):
        return all(map(parse_real, topology.device_names))
    return False


def runs_kernels(name: str) -> bool:
    """The name stands for cores of this machine, on which ONNX Runtime's own kernels run."""
    with suppress(InvalidTopology):
        return parse_device(name).family == "cpu"
    return False


def parse_device(name: str, host: str = "") -> RealDevice:
    """The real device that a name stands for; `host` is the host name of this machine in device names.

    Raises:
        InvalidTopology: the name stands for no real device, for one of another host, or for a core that this process may
            not use.
    """
    device = parse_real(name)
    if device.host != host:
        raise InvalidTopology(
            f"device {name!r} is on the host {device.host!r}; name its cluster by --ray ADDRESS or DistributedSession"
        )
    allowed = allowed_cores()
    missing = next((core for core in device.cores if core not in allowed), None)
    if missing is not None:
        listed = ", ".join(map(str, allowed))
        raise InvalidTopology(f"device {name!r}: core {missing} is not available to this process; it may use {listed}")
    return device


def pin(device: RealDevice) -> None:
    """Keeps the calling thread on the device's cores; does nothing without cores or where the system cannot pin.

    On the CPU provider these are the first core alone: ONNX Runtime pins its other threads itself. Threads of other
    providers inherit all cores, and so do those that run ops in parallel, which ONNX Runtime does not pin.
    """
    if device.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, caller_cores(device))


def caller_cores(device: RealDevice) -> tuple[int, ...]:
    """Cores of the thread that calls the device's sessions."""
    return device.cores[:1] if device.family == "cpu" and not device.parallel else device.cores


def with_driving_cores(devices: Sequence[RealDevice]) -> list[RealDevice]:
    """The devices, where NVIDIA GPUs have cores for the threads that drive them: all on which no device of the set computes.

    Such a thread would otherwise take turns with the pinned thread of a core. Cores in a device's name win; where the set computes
    on every core, the system chooses.
    """
    computing = {core for device in devices if device.on_host for core in device.cores or allowed_cores()}
    free = tuple(core for core in allowed_cores() if core not in computing)
    return [device if device.nvidia_gpu is None or device.cores else replace(device, cores=free) for device in devices]


def pinned(device: RealDevice) -> AbstractContextManager[None]:
    """Keeps the calling thread on the device's cores within the block, as `pin` does, and restores its affinity afterwards."""
    if not device.cores or not hasattr(os, "sched_setaffinity"):
        return nullcontext()
    return pinned_to(caller_cores(device))


def on_cores(device: RealDevice) -> AbstractContextManager[None]:
    """Brings the calling thread to the device's cores for a short call, as `pinned` does, unless it is there.

    The system has no cause to move a thread that computes alone on its core, and pinning costs some 20 us. Other providers are
    called pinned always: OpenVINO leaves the calling thread on the cores of the session.
    """
    is_there = device.family == "cpu" and current_core() in caller_cores(device)
    return nullcontext() if is_there else pinned(device)


def current_core() -> int:
    """The core that the calling thread is on; -1 where the system does not tell."""
    return -1 if _GET_CPU is None else int(_GET_CPU())


@dataclass(frozen=True)
class SessionSettings:
    """Threads and configuration of a session."""

    intra_op_threads: int
    inter_op_threads: int
    parallel: bool
    """Ops that do not depend on each other run at the same time."""
    entries: Mapping[str, str]


def session_settings(device: RealDevice) -> SessionSettings:
    """Settings with which a session uses this device's cores alone.

    The calling thread is one of the session's threads, so the affinities name the other cores; ONNX Runtime counts cores
    from one there. Threads do not spin by default, as several sessions share the machine. Ops that run in parallel each have
    all threads of the session, so that a long op does not leave cores idle.
    """
    threads = max(1, len(device.cores)) if device.family == "cpu" else 1
    entries = {f"session.{kind}.allow_spinning": str(int(device.spinning)) for kind in ("intra_op", "inter_op")}
    if device.spinning:  # only until the run ends, so that spinning takes no time of the next session
        entries["session.force_spinning_stop"] = "1"
    entries["session.use_env_allocators"] = "1"
    if threads > 1 and not device.parallel:
        entries["session.intra_op_thread_affinities"] = ";".join(str(core + 1) for core in device.cores[1:])
    return SessionSettings(threads, len(device.cores) if device.parallel else 1, device.parallel, entries)


def log_level(device: RealDevice) -> int:
    """ONNX Runtime's log level for sessions on a device: no warnings, as cut models often break declared shapes.

    Its own kernels on cores log no error that is not raised as well.
    """
    return FATAL_ONLY if device.family == "cpu" else _ERRORS_ONLY


def session_options(device: RealDevice) -> ort.SessionOptions:
    """Options for a session that uses this device's cores alone and records the provider of each op."""
    settings, options = session_settings(device), ort.SessionOptions()
    options.log_severity_level = log_level(device)
    options.intra_op_num_threads, options.inter_op_num_threads = settings.intra_op_threads, settings.inter_op_threads
    if settings.parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    _share_arena()
    for key, value in settings.entries.items():
        options.add_session_config_entry(key, value)
    if device.family != "cpu":
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def provider_options(device: RealDevice) -> dict[str, str]:
    """The options of the device's execution provider; options in the device's name win.

    Sessions on a GPU share a stream, unless `own_stream` gives each its own, as is ONNX Runtime's default.

    A memory limit holds for each session's arena, which then grows by the requested bytes and not in powers of two.
    OpenVINO computes in the model's precision, with one thread per core in the name; its threads inherit the affinity of
    the thread that creates the session.
    """
    if device.family == "cpu":
        return {}
    found = {"device_type" if device.provider == _OPENVINO else "device_id": device.device_id}
    if device.provider == _OPENVINO:
        found["precision"] = "ACCURACY"
        if device.cores and device.on_host:
            found["num_of_threads"] = str(len(device.cores))
    if device.family == "cuda" and device.memory_bytes is not None:
        found |= {"gpu_mem_limit": str(device.memory_bytes), "arena_extend_strategy": "kSameAsRequested"}
    stream = None if device.own_stream else device_stream(device)
    if stream is not None:
        found["user_compute_stream"] = str(stream)
    return {**found, **device.options}


def check_offered(device: RealDevice) -> None:
    """Checks that the installed ONNX Runtime has the device's provider.

    Raises:
        MissingDependency: the provider is missing; the message names the package to install.
    """
    if device.provider not in offered_providers():
        package = _PACKAGES.get(device.provider, "a build of ONNX Runtime that has it")
        raise MissingDependency(
            f"device {device.name!r} needs ONNX Runtime's {device.provider}; "
            f"installed are {', '.join(offered_providers())}: install {package} or choose other devices"
        )


def create_session(
    model: Path | bytes,
    device: RealDevice,
    data_folder: Path | None = None,
    options: ort.SessionOptions | None = None,
    custom_ops: Sequence[Path] = (),
    optimised: bool = False,
) -> ort.InferenceSession:
    """A session of a model on one device alone; call it on the thread that `pin` keeps on the device.

    `data_folder` holds the external weights of a model in memory. `options` are those of `session_options` by default.
    `custom_ops` are libraries with operators that ONNX Runtime does not have. An `optimised` model runs as it is.

    Raises:
        MissingDependency: ONNX Runtime does not offer the device's provider, or did not use it.
        MeasurementFailed: the provider cannot run some ops, which the message names; or a library cannot be loaded.
        Exception: on the CPU provider, ONNX Runtime's own error for a model that it refuses.
    """
    check_offered(device)
    missing = () if device.nvidia_gpu is None else load_cuda_libraries()
    options = options or session_options(device)
    register_custom_ops(options, custom_ops)
    if optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if data_folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(data_folder))
    try:
        session = ort.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options,
            providers=[(device.provider, provider_options(device))],
            enable_fallback=0,
        )
    except Exception as error:  # ONNX Runtime's errors have no base class of their own
        if device.family == "cpu":
            raise
        raise MeasurementFailed(
            f"device {device.name!r}: {device.provider} refuses the model: {_reason(error)}"
        ) from error
    if session.get_providers()[0] != device.provider:
        raise MissingDependency(
            f"device {device.name!r}: ONNX Runtime runs on {session.get_providers()[0]} instead of {device.provider}; "
            + (f"{', '.join(missing)} cannot be loaded: {remedy(missing)}" if missing else "see gnnplace doctor")
        )
    if device.family != "cpu":
        assigned = session.get_provider_graph_assignment_info()
        found = ((part.ep_name, node.op_type) for part in assigned for node in part.get_nodes())
        check_assignment(device, found, partial(shape_ops, model))
    return session


def register_custom_ops(options: ort.SessionOptions, libraries: Sequence[Path]) -> None:
    """Adds the operators of shared libraries to sessions with these options.

    Raises:
        MeasurementFailed: a library is missing, or has no custom operators.
    """
    for library in libraries:
        try:
            options.register_custom_ops_library(str(library))
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            raise MeasurementFailed(
                f"{library}: cannot be loaded as a library of custom operators: {_reason(error)}"
            ) from error


def _reason(error: Exception) -> str:
    """The last line of ONNX Runtime's message, without the position in its source."""
    return str(error).strip().rpartition("\n")[2].strip()


def check_assignment(
    device: RealDevice,
    assigned: Iterable[tuple[str, str]],
    with_shapes: Callable[[], Counter[str]] = Counter,
) -> None:
    """Checks the provider and type of every op of a session; ONNX Runtime runs ops on the CPU silently.

    `with_shapes` gives the number of ops by type that compute with shapes, which may stay on the CPU beside CUDA.

    Raises:
        MeasurementFailed: an op is not on the device's provider, and does not merely compute shapes or masks, or move data.
    """
    may_stay = _SHAPE_OPS if device.family == "cuda" else _SHAPE_OPS | _MASK_OPS if device.on_host else frozenset()
    elsewhere = Counter(op for provider, op in assigned if provider != device.provider and op not in may_stay)
    if elsewhere and device.family == "cuda":
        elsewhere -= with_shapes()
    if elsewhere:
        named = ", ".join(f"{op_type} ({count})" for op_type, count in elsewhere.most_common(5))
        raise MeasurementFailed(
            f"device {device.name!r} cannot run these ops, which {device.provider} left to the CPU: {named}; "
            "place them on another device"
        )


@cache
def _share_arena() -> None:
    """Makes all sessions of the process share one arena of main memory.

    With an arena per session, the outputs of many small sessions lie far apart and fall out of the cache: a network of 52
    segments then took 1.23 times as long on two cores.
    """
    arena = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(arena, None)

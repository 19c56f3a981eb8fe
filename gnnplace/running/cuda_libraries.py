"""The libraries of CUDA and cuDNN that ONNX Runtime's CUDA provider needs, where pip has installed them."""

import ctypes
import importlib.util
import io
import re
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path

import onnxruntime as ort
from onnxruntime.capi import build_and_package_info

_INSTALL = "pip install 'onnxruntime-gpu[cuda,cudnn]'"
_FAILURE = re.compile(r"^Failed to load (\S+?):", re.MULTILINE)  # what preload_dlls prints
_ERRORS_ONLY = 3
_CUDNN, _DRIVER = "libcudnn.so.9", "libcuda.so.1"


@cache
def load_cuda_libraries() -> tuple[str, ...]:
    """Loads the libraries into this process, once; the names of those that are missing.

    ONNX Runtime looks for them beside its own package only, and the system elsewhere; they may also be in another folder of
    `sys.path`. The driver is no library of pip, and is named where it is missing. Afterwards ONNX Runtime's default logger
    reports errors only: version 1.31 warns at every session that CUDA is no plug-in, and offers no narrower setting.
    """
    ort.set_default_logger_severity(_ERRORS_ONLY)
    missing = _preload("")
    for folder in _library_folders() if missing or not _loads(_CUDNN) else ():
        missing = _preload(str(folder))
    return (*missing, *(name for name in (_CUDNN, _DRIVER) if not _loads(name)))


def needed_cuda() -> tuple[int, ...] | None:
    """The version of CUDA, such as (13, 0), that the installed ONNX Runtime was built for; None for a build without CUDA."""
    text = getattr(build_and_package_info, "cuda_version", "")
    return tuple(map(int, text.split("."))) if text else None


def remedy(missing: Sequence[str]) -> str:
    """The command that brings missing libraries."""
    steps = ["install NVIDIA's driver"] if _DRIVER in missing else []
    return "; ".join([*([_INSTALL] if set(missing) - {_DRIVER} else []), *steps])


def _library_folders() -> list[Path]:
    """The folders with libraries in NVIDIA's pip packages."""
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("nvidia")
        if spec is not None:
            return sorted(found for root in spec.submodule_search_locations or () for found in Path(root).glob("*/lib"))
    return []


def _preload(folder: str) -> tuple[str, ...]:
    """The libraries that ONNX Runtime cannot load from a folder, nor has loaded before; empty: from the folders that it knows."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        ort.preload_dlls(directory=folder)
    return tuple(dict.fromkeys(Path(path).name for path in _FAILURE.findall(printed.getvalue())))


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True

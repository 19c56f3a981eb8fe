"""CUDA's libraries are found in any folder of `sys.path`, against a stand-in for ONNX Runtime's loader."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnplace.running import cuda_libraries
from gnnplace.running.cuda_libraries import load_cuda_libraries, remedy

CUDA = ("libcublasLt.so.13", "libcudart.so.13")
CUDNN, DRIVER = "libcudnn.so.9", "libcuda.so.1"


class Machine:
    """Libraries load by file name once they are loaded, and from the folders that hold them."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self.asked: list[str] = []

    def preload_dlls(self, directory: str) -> None:
        """Prints what ONNX Runtime prints; it looks beside its own package, which here is never the right place."""
        self.asked.append(directory)
        held = {path.name for path in Path(directory).iterdir()} if directory else set()
        self.loaded |= held & {*CUDA, CUDNN}
        for name in CUDA:
            if name not in self.loaded:
                print(f"Failed to load {name}: {name}: cannot open shared object file: No such file or directory")
        if not self.loaded.issuperset(CUDA):
            print("Please follow https://onnxruntime.ai/docs/install/#cuda-and-cudnn to install CUDA.")

    def load(self, name: str) -> None:
        """Loads what the loader has brought."""
        if name not in self.loaded:
            raise OSError(f"{name}: cannot open shared object file")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machine]:
    """No library is loaded; the folder `tmp_path` is the only one with packages of NVIDIA."""
    made = Machine()
    monkeypatch.setattr(cuda_libraries.ort, "preload_dlls", made.preload_dlls)
    monkeypatch.setattr(cuda_libraries.ort, "set_default_logger_severity", lambda level: None)
    monkeypatch.setattr(cuda_libraries.ctypes, "CDLL", made.load)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    load_cuda_libraries.cache_clear()
    yield made
    load_cuda_libraries.cache_clear()


def installed(folder: Path, libraries: dict[str, tuple[str, ...]]) -> None:
    """Packages of NVIDIA as pip lays them out."""
    for package, names in libraries.items():
        (folder / "nvidia" / package / "lib").mkdir(parents=True)
        for name in names:
            (folder / "nvidia" / package / "lib" / name).touch()


def test_libraries_are_loaded_wherever_pip_has_put_them(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path, {"cu13": CUDA, "cudnn": (CUDNN,)})
    machine.loaded.add(DRIVER)
    assert load_cuda_libraries() == load_cuda_libraries() == ()
    assert machine.asked == ["", *(str(tmp_path / "nvidia" / package / "lib") for package in ("cu13", "cudnn"))]
    assert capsys.readouterr().out == ""


def test_missing_libraries_are_named_with_the_command_that_brings_them(machine: Machine, tmp_path: Path) -> None:
    installed(tmp_path, {"cu13": CUDA[1:]})
    missing = load_cuda_libraries()
    assert missing == (CUDA[0], CUDNN, DRIVER)
    assert remedy(missing) == "pip install 'onnxruntime-gpu[cuda,cudnn]'; install NVIDIA's driver"
    assert remedy((DRIVER,)) == "install NVIDIA's driver"


def test_libraries_that_the_system_finds_are_not_looked_for(machine: Machine) -> None:
    machine.loaded |= {*CUDA, CUDNN, DRIVER}
    assert load_cuda_libraries() == ()
    assert machine.asked == [""]

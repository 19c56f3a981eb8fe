"""A placed model runs where numpy, onnx, onnx-ir and ONNX Runtime are installed, and nothing else."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import gnnplace
from gnnplace.api import PlaceOptions, place
from gnnplace.onnx_io.sample_inputs import model_from_text

DEPLOYED = ("numpy", "onnx", "onnx-ir", "onnxruntime")


def random_groups() -> list[int]:
    """The op groups of a random graph."""
    import numpy as np

    from gnnplace.graph.coarsen import coarsen
    from gnnplace.graph.op_graph import Op, OpGraph, Tensor

    rng = np.random.default_rng(3)
    ops = [Op(f"o{k}", flops=float(rng.integers(1, 9))) for k in range(60)]
    readers = [tuple(f"o{j}" for j in range(k + 1, 60) if rng.random() < 0.06) for k in range(60)]
    tensors = [Tensor(op.name, int(rng.integers(8, 99)), names) for op, names in zip(ops, readers, strict=True)]
    return coarsen(OpGraph.build("random", ops, tensors), 9).group_of_op.tolist()


def distributions(names: tuple[str, ...]) -> set[str]:
    """The named distributions and all that they require here."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            needed = [Requirement(text) for text in metadata.requires(name) or ()]
            waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a script in an environment of these distributions and the package alone; its output."""
    site = tmp_path_factory.mktemp("site")
    (site / "gnnplace").symlink_to(Path(gnnplace.__file__).parent)
    for name in distributions(DEPLOYED):
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))

    def run(script: str, *arguments: object) -> str:
        code = f"import sys; sys.path.append({str(site)!r})\n{script}"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, *map(str, arguments)],
            capture_output=True, text=True, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def placed(tmp_path: Path) -> Path:
    """A saved model of two devices."""
    model = tmp_path / "model.onnx"
    model.write_bytes(
        model_from_text(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => (float[2, 4] y) '
            "{ a = Relu(x)  b = Exp(a)  c = Neg(b)  y = Sigmoid(c) }"
        )
    )
    place(model, "cpu:0,cpu:1", PlaceOptions(planner="round-robin")).save(tmp_path / "placed")
    return tmp_path / "placed"


@pytest.mark.parametrize("saved", ["", "placed.onnx"], ids=["folder", "model file"])
def test_a_session_has_the_outputs_of_the_full_installation(
    deployed: Callable[..., str], placed: Path, saved: str
) -> None:
    script = """
import numpy as np, gnnplace
with gnnplace.Session(sys.argv[1]) as session:
    print(session.get_devices(), session.run(None, {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)})[0].tolist())
"""
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    with gnnplace.Session(placed / saved) as session:
        expected = f"{session.get_devices()} {session.run(None, {'x': x})[0].tolist()}"
    assert deployed(script, placed / saved).strip() == expected


def test_the_run_command_reads_inputs_and_writes_outputs(deployed: Callable[..., str], placed: Path) -> None:
    script = "from gnnplace.cli.run_placed import main; main()"
    assert "per request" in deployed(script, "run", placed, "--repeat", 3, "--output", placed / "y.npz")
    np.savez(placed / "x.npz", x=np.zeros((2, 4), np.float32))
    result = json.loads(
        deployed(script, "run", placed, "--input", placed / "x.npz", "--output", placed / "y.npz", "--json")
    )
    assert result["outputs"] == {"y": {"shape": [2, 4], "dtype": "float32"}}
    np.testing.assert_allclose(np.load(placed / "y.npz")["y"], 1 / (1 + np.e), rtol=1e-6)


def test_compiled_functions_give_the_same_results_without_numba(deployed: Callable[..., str]) -> None:
    script = f"{inspect.getsource(random_groups)}\nprint(random_groups())"
    assert json.loads(deployed(script)) == random_groups()

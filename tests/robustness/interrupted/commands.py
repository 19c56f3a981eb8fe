"""Commands that are killed: a small run of each one that writes files, in a folder and with a cache of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from models_zoo.networks.light import write_light_model

MODEL, CACHE, SYSTEM = "model.onnx", "cache", "tmp"
"""Names in the folder of a run: the model, the cache, and the folder of temporary files."""
_PROGRAM = "from gnnplace.cli.main import main; main()"
_QUICKLY = f"""
from gnnplace.api import measuring
from gnnplace.measuring.timing import StoppingRule
from gnnplace.measuring.timing import MeasureOptions
quick = StoppingRule(warmup=1, min_repeats=4, max_repeats=4)
measuring.MEASURE_OPTIONS, measuring._PATIENT = MeasureOptions(search=quick, final=quick, plain=quick), quick
{_PROGRAM}
"""
_TRAINING = """
import gnnplace
from gnnplace.api.training_problems import ProblemRanges
from gnnplace.policy.network import PolicyConfig
from gnnplace.training.data_parallel import DataParallelConfig
from gnnplace.training.search_ppo import SearchPpoConfig
ppo = SearchPpoConfig(num_updates=12, update_epochs=1)
training = DataParallelConfig(num_processes=2, searches=2, evaluations=(10, 20), ppo=ppo, save_every=2)
problems = ProblemRanges(
    min_units=10, max_units=16, growth=8, zoo_share=0.0, constructions=0, headroom_evaluations=(5, 50), max_draws=3
)
gnnplace.train("run", gnnplace.TrainSettings(training, problems, PolicyConfig(hidden=8, rounds=1, type_width=2)))
"""
_SAVES = """
import gnnplace
plan = gnnplace.place("model.onnx", "cpu:0,cpu:1", gnnplace.PlaceOptions(planner="heft"))
for _ in range(6):
    plan.save("placed")
"""


@dataclass(frozen=True)
class Command:
    """Arguments of a Python program, and the checks of its files."""

    arguments: tuple[str, ...]
    same: tuple[str, ...] = ()
    """Files that only the arguments determine, so that they are equal after every restart."""
    kills: int = 34
    """Number of kills; fewer for commands that take long."""


def _gnnplace(line: str, *same: str, program: str = _PROGRAM, kills: int = 34) -> Command:
    return Command(("-c", program, *line.split()), same, kills)


COMMANDS: Mapping[str, Command] = {
    "place": _gnnplace(
        f"place {MODEL} --devices cpu:0,cpu:1 --planner annealing --out placed", "placed/placement.json", "placed/parts/manifest.json"
    ),
    "place --measure": _gnnplace(
        f"place {MODEL} --devices cpu:0,cpu:1 --measure --force --planner annealing --evaluations 6 --out placed",
        program=_QUICKLY, kills=12,
    ),
    "train": Command(("-c", _TRAINING), ("run/policy.safetensors",), kills=8),
    "profile": _gnnplace(f"profile {MODEL} --devices cpu:0,cpu:1 --force --out costs.json", kills=16),
    "bench": _gnnplace("bench generalization --only wavefront-12x90 --rows single,heft --seeds 1 --out result.json", kills=8),
    "save": Command(("-c", _SAVES), ("placed/placement.json", "placed/parts/manifest.json")),
    "zoo": _gnnplace("zoo ensemble_mlp --small --out export.onnx", "export.onnx", kills=16),
}  # fmt: skip


def prepare(folder: Path) -> None:
    """Creates the model and the folders that every command expects."""
    for name in (CACHE, SYSTEM):
        (folder / name).mkdir()
    write_light_model("squeezenet", folder / MODEL)


@contextmanager
def running(command: Command, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The running program; its process group is killed at the end, and its errors go to `errors.txt`."""
    root = str(Path(__file__).resolve().parents[3])
    places = {
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "GNNPLACE_CACHE": str(folder / CACHE),
        "TMPDIR": str(folder / SYSTEM),
    }
    with (folder / "errors.txt").open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, *command.arguments], cwd=folder, env={**os.environ, **places}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=errors, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

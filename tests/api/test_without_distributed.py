"""Ray is a plug-in: a package without the folder `distributed` places, compares, trains and runs models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gnnplace
import models_zoo
from models_zoo.networks.light import write_light_model

PROGRAM = """
import importlib.util
import sys

# An editable installation would find the folder where the repository has it.
sys.meta_path = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]
assert importlib.util.find_spec("gnnplace.distributed") is None

import numpy as np

import gnnplace
from gnnplace.api.training_problems import ProblemRanges
from gnnplace.errors import MissingDependency
from gnnplace.policy.network import PolicyConfig
from gnnplace.training.data_parallel import DataParallelConfig
from gnnplace.training.search_ppo import SearchPpoConfig

plan = gnnplace.place("model.onnx", sys.argv[1], planner="heft")
with gnnplace.Session(plan.save("placed")) as session:
    feed = {info.name: np.ones(info.shape, np.float32) for info in session.get_inputs()}
    print(len(session.run(None, feed)))
print([row["planner"] for row in gnnplace.compare("model.onnx", "k40x2", ["single", "heft"])])

ppo = SearchPpoConfig(num_updates=1, update_epochs=1)
training = DataParallelConfig(num_processes=1, searches=2, evaluations=(10, 20), ppo=ppo)
problems = ProblemRanges(
    min_units=10, max_units=16, growth=8, zoo_share=0.0, constructions=0, headroom_evaluations=(5, 50), max_draws=3
)
settings = gnnplace.TrainSettings(training, problems, PolicyConfig(hidden=8, rounds=1, type_width=2))
print(gnnplace.train("run", settings)["updates"])
try:
    gnnplace.compare("model.onnx", "k40x2", ["heft"], ray="local")
except MissingDependency as error:
    print("distributed" in str(error))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the package but for `distributed`."""
    copy = tmp_path / "gnnplace"
    copy.mkdir()
    for path in Path(gnnplace.__file__).parent.iterdir():
        if path.name not in {"distributed", "__pycache__"}:
            (copy / path.name).symlink_to(path)
    (tmp_path / "models_zoo").symlink_to(Path(models_zoo.__file__).parent)
    write_light_model("squeezenet", tmp_path / "model.onnx")
    return tmp_path


def test_without_the_plug_in_everything_but_ray_works(package: Path) -> None:
    core = f"cpu:{min(os.sched_getaffinity(0))}"
    environment = {**os.environ, "PYTHONPATH": str(package), "GNNPLACE_CACHE": str(package / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, core], cwd=package, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["1", "['single', 'heft']", "1", "True"], done.stderr

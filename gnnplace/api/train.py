"""A training run: begun once, continued as often as it is stopped, until its policy is trained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gnnplace.api.search import hosts_at
from gnnplace.api.training_problems import ProblemRanges, SampledProblems, training_families
from gnnplace.errors import ProcessLost
from gnnplace.planners.gnn.fine_tuning import trace_searches
from gnnplace.policy.checkpoint import load_policy, save_policy
from gnnplace.policy.network import PolicyConfig, build_policy
from gnnplace.training import Ablation
from gnnplace.training.data_parallel import DataParallelConfig, RunControl, train_data_parallel
from gnnplace.training.problems import TrainingTask
from gnnplace.training.process_group import process_group
from gnnplace.training.run_state import InvalidRun, MetricsLog, RunState, fresh_state, read_state, write_state
from gnnplace.versions import installed_versions

__all__ = [
    "RunFiles",
    "StartPolicy",
    "TrainSettings",
    "begin_run",
    "continue_run",
    "stored_settings",
]

_LOSSES = 3
_VERSIONED = ("gnnplace", "numpy", "numba", "torch", "dgl")


@dataclass(frozen=True)
class StartPolicy:
    """A policy that training began with."""

    name: str
    sha256: str


@dataclass(frozen=True)
class TrainSettings:
    """Everything that a run's weights follow from."""

    training: DataParallelConfig = DataParallelConfig()
    problems: ProblemRanges = ProblemRanges()
    policy: PolicyConfig = PolicyConfig()
    start: StartPolicy | None = None
    """None: fresh weights from the seed."""

    @classmethod
    def of(
        cls,
        num_updates: int,
        num_processes: int,
        seed: int,
        ablation: Ablation | None = None,
    ) -> TrainSettings:
        """The defaults for a run of that length: problems have their full size after a quarter of it."""
        ppo = dataclasses.replace(cls.training.ppo, num_updates=num_updates, final_reward=ablation == "final-reward")
        training = dataclasses.replace(cls.training, seed=seed, num_processes=num_processes, ppo=ppo)
        growth = max(1, num_updates * num_processes * training.problems_per_process // 4)
        policy = dataclasses.replace(
            cls.policy,
            device_features=ablation != "no-device-features",
            message_passing=ablation != "no-message-passing",
        )
        return cls(training, dataclasses.replace(cls.problems, growth=growth), policy)

    @property
    def ablation(self) -> Ablation | None:
        """What is left out."""
        if self.training.ppo.final_reward:
            return "final-reward"
        if not self.policy.device_features:
            return "no-device-features"
        return None if self.policy.message_passing else "no-message-passing"


@dataclass(frozen=True)
class RunFiles:
    """Where a run writes: `out` is a folder, or a policy with its folder beside it."""

    out: Path

    @property
    def folder(self) -> Path:
        """For what is of interest while it runs; `NAME.training` for a policy `NAME.safetensors`."""
        return self.out.with_suffix(".training") if self.out.suffix == ".safetensors" else self.out

    @property
    def policy(self) -> Path:
        """The trained policy; its card is beside it."""
        return self.out if self.out.suffix == ".safetensors" else self.out / "policy.safetensors"

    @property
    def state(self) -> Path:
        """What it takes to go on."""
        return self.folder / "state.pt"

    @property
    def metrics(self) -> Path:
        """A JSON object per update, one a line."""
        return self.folder / "metrics.jsonl"


def begin_run(out: Path, settings: TrainSettings, policy: Path | None = None) -> None:
    """Writes the state before the first update, so that the run can be continued from then on; `policy` is its start.

    A run that was begun in the same way stays as it is, to be continued: it would come to the same weights again.

    Raises:
        InvalidRun: there is another run already.
        InvalidPolicy: the start cannot be used.
    """
    files = RunFiles(out)
    if policy is None:
        network = build_policy(settings.training.seed, settings.policy)
    else:
        network, _ = load_policy(policy)
        start = StartPolicy(policy.name, hashlib.sha256(policy.read_bytes()).hexdigest())
        settings = dataclasses.replace(settings, policy=network.config, start=start)
    text = json.dumps(dataclasses.asdict(settings))
    if not files.state.exists():
        write_state(files.state, fresh_state(network, text))
        return
    state = read_state(files.state)
    if state.settings != text:
        raise InvalidRun(
            f"{files.folder}: holds another run with {state.update} updates; add --resume to go on with that, or choose another --out"
        )


def stored_settings(out: Path) -> TrainSettings:
    """What the run in `out` was begun with.

    Raises:
        InvalidRun: there is none, or one of another version.
    """
    path = RunFiles(out).state
    try:
        return TypeAdapter(TrainSettings).validate_json(read_state(path).settings)
    except ValidationError as error:
        raise InvalidRun(
            f"{path}: its settings are not those of this version ({error.errors()[0]['msg']}); start anew"
        ) from None


def continue_run(
    out: Path,
    on_update: Callable[[Mapping[str, Any]], None] = lambda row: None,
    should_stop: Callable[[], bool] = lambda: False,
    ray: str | None = None,
    on_warning: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Trains on until all updates are done or `should_stop`, asked before each; gives the policy's card.

    Writes the policy with its card whenever the state is saved, a line of metrics per update, and TensorBoard's event files
    where it is installed. With `ray`, the address of a cluster, the processes are on its hosts; where one is lost, `on_warning` is
    told, and the run goes on from the last saved state.

    Raises:
        InvalidRun: there is no run in `out`.
        ProcessLost: another process has ended early, on a cluster three times between two saved states; the run can be continued.
    """
    files, settings = RunFiles(out), stored_settings(out)
    hosts = hosts_at(ray)
    control = RunControl(should_stop, process_group if hosts is None else hosts.process_group())
    state, losses, saved = None, 0, -1
    while state is None:
        try:
            state = _trained(files, settings, on_update, control)
        except ProcessLost as lost:
            before, saved = saved, read_state(files.state).update
            losses = losses + 1 if saved == before else 1
            if ray is None or losses == _LOSSES or should_stop():
                raise
            on_warning(f"{str(lost).rpartition(';')[0]}; the run goes on by itself from update {saved}")
    return _card(files.policy.name, settings, state)


def _trained(
    files: RunFiles, settings: TrainSettings, on_update: Callable[[Mapping[str, Any]], None], control: RunControl
) -> RunState:
    """The state after all that was left to do."""
    task = TrainingTask(SampledProblems(settings.training.seed, settings.problems), trace_searches)
    with MetricsLog(files.metrics, read_state(files.state).update) as log:

        def note(row: Mapping[str, Any]) -> None:
            log.write(row)
            on_update(row)

        def save(state: RunState) -> None:
            save_policy(files.policy, state.network, _card(files.policy.name, settings, state))

        return train_data_parallel(files.state, task, settings.training, note, save, control)


def _card(name: str, settings: TrainSettings, state: RunState) -> dict[str, Any]:
    """What was trained on what, how, and how long."""
    training = settings.training
    start = f" --policy {settings.start.name}" if settings.start else ""
    without = f" --ablation {settings.ablation}" if settings.ablation else ""
    return {
        "data": {"families": list(training_families()), **dataclasses.asdict(settings.problems)},
        "command": f"gnnplace train --out {name} --updates {training.ppo.num_updates} "
        f"--processes {training.num_processes} --seed {training.seed}{start}{without}",
        "seed": training.seed,
        "training": dataclasses.asdict(training),
        "start": dataclasses.asdict(settings.start) if settings.start else None,
        "updates": state.update,
        "wall_s": state.wall_s,
        "versions": installed_versions(*_VERSIONED),
    }

"""A training run, which may be stopped and resumed until its policy is trained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from gnnplace.api.measured_training import UPDATES, Incumbent, MeasuredModel, executed_problem
from gnnplace.api.search import hosts_at
from gnnplace.api.train_settings import StartPolicy, TrainSettings
from gnnplace.api.training_problems import SampledProblems, training_families
from gnnplace.arguments import check_number, check_whole
from gnnplace.devices.detect import allowed_cores
from gnnplace.errors import GnnplaceError, ProcessLost
from gnnplace.planners.gnn.search import trace_searches
from gnnplace.planners.gnn.teaching import lessons_of
from gnnplace.policy.checkpoint import load_policy, policy_file, save_policy
from gnnplace.policy.linear import begin_as_prior
from gnnplace.policy.network import build_policy
from gnnplace.training import Ablation
from gnnplace.training.data_parallel import RunControl, TrainingTask, train_data_parallel
from gnnplace.training.process_group import process_group
from gnnplace.training.run_state import (
    InvalidRun,
    RunState,
    fresh_state,
    metrics_log,
    read_metrics,
    read_state,
    write_state,
)
from gnnplace.versions import installed_versions

Row = Mapping[str, Any]
_UPDATES = 200
_MAX_LOSSES = 3
"""Lost processes between two checkpoints that end a run on a cluster."""
_MOST_PROCESSES = 64
"""Limit of processes on one machine, or four per core where that is more."""
_VERSIONED = ("gnnplace", "numpy", "numba", "torch", "dgl")


@dataclass(frozen=True)
class RunFiles:
    """The files of a run; `out` is a folder, or a policy `NAME.safetensors` with the folder `NAME.training` beside it."""

    out: Path

    @property
    def folder(self) -> Path:
        """Folder of the state and the metrics."""
        return self.out.with_suffix(".training") if self.out.suffix == ".safetensors" else self.out

    @property
    def policy(self) -> Path:
        """The trained policy; its card is beside it."""
        return self.out if self.out.suffix == ".safetensors" else self.out / "policy.safetensors"

    @property
    def state(self) -> Path:
        """The last checkpoint."""
        return self.folder / "state.pt"

    @property
    def metrics(self) -> Path:
        """A JSON object per update, one per line."""
        return self.folder / "metrics.jsonl"


def train(  # noqa: PLR0913 each option of a run is an argument
    out: str | Path,
    settings: TrainSettings | None = None,
    *,
    updates: int | None = None,
    processes: int | None = None,
    seed: int | None = None,
    policy: str | Path | None = None,
    ablation: str | Sequence[str] | None = None,
    resume: bool = False,
    minutes: float | None = None,
    ray: str | None = None,
    measure: str | Path | None = None,
    devices: str | None = None,
    input: str | Path | None = None,
    force: bool = False,
    on_update: Callable[[Row], None] = lambda row: None,
    on_warning: Callable[[str], None] = lambda text: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Trains a policy for the planner `gnn`, or resumes a stopped run; gives the card of the policy.

    Each checkpoint writes the policy with its card. Each update adds a line of metrics, and an entry to TensorBoard's event
    files if tensorboard is installed. A run that began with the same arguments is resumed, and ends with the same weights.

    >>> train("policy.safetensors", updates=200)["updates"]  # doctest: +SKIP
    200

    Args:
        out: folder of the run, or the policy `NAME.safetensors` to write.
        settings: everything that determines the weights, in place of `updates`, `processes`, `seed` and `ablation`.
        updates: number of updates; None: 200.
        processes: number of processes; None: one per core of this machine or of the cluster.
        seed: None: 0.
        policy: trained policy to start from, a file or `shipped`; None: fresh weights.
        ablation: part of the method to leave out (a name of `Ablation`), or several.
        resume: resume the run in `out`; other arguments must equal those that it began with.
        minutes: time after which the run stops.
        ray: address of a Ray cluster, whose hosts run the processes. When one is lost, the run resumes from the last checkpoint.
        measure: model to train on by executing its placements on `devices`, in one process and by default with 50 updates;
            the metrics have the seconds of the start and of the fastest placement so far, and the number of executions. That
            placement is `placement.json` in the run's folder, and the card's `executed` is its difference to the start.
        devices: real devices such as `cpu:0,cpu:1`, for `measure`.
        input: `.npz` file of the inputs for `measure`, random ones by default; they state the sizes of symbolic dimensions.
        force: execute even if other work keeps a device busy.
        on_update: receives the metrics of every update; `of_updates` is the number of all updates.
        on_warning: receives a line for every lost process.
        should_stop: called before every update; true stops the run.

    Raises:
        GnnplaceError: an argument contradicts the run, `settings` or `policy`, or is out of range.
        InvalidRun: `out` holds another run, or there is none to resume.
        InvalidPolicy: the policy to start from cannot be used.
        UnsupportedModel: the model to execute cannot be read.
        InvalidInput: the model to execute does not take the inputs.
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run, or other work keeps a device busy.
        ProcessLost: another process has ended early, on a cluster three times between two checkpoints; the run can be resumed.
    """
    ablations = _known(ablation)
    left_out = ", ".join(ablations) or None
    if settings is not None and (resume or ablations or any(value is not None for value in (updates, processes, seed))):
        raise GnnplaceError("settings determine updates, processes, seed and ablation; leave these and resume out")
    for name, count, least in (("updates", updates, 1), ("processes", processes, 1), ("seed", seed, 0)):
        if count is not None:
            check_whole(name, count, least)
    if minutes is not None:
        check_number("minutes", minutes)
    most = max(_MOST_PROCESSES, 4 * len(allowed_cores()))
    if ray is None and processes is not None and processes > most:
        raise GnnplaceError(f"processes is {processes}; expected at most {most} on the cores of this machine")
    _check_measured(measure, devices, processes, ray)
    if input is not None and measure is None:
        raise GnnplaceError("input is for a model that is executed; name the model with measure, or leave input out")
    files, start, hosts = RunFiles(Path(out)), None if policy is None else policy_file(policy), hosts_at(ray)
    if resume:
        settings = stored_settings(files.out)
        given = {"updates": updates, "processes": processes, "seed": seed, "policy": start and start.name}
        if measure is not None:
            given |= {"measure": str(measure), "devices": devices, "input": input and str(input)}
        _refuse_changes({**given, "ablation": left_out}, settings)
    else:
        if start is not None and ablations:
            raise GnnplaceError(
                f"ablation {left_out!r} changes the network, which policy {start.name!r} has; leave one out"
            )
        if settings is None:
            measured = None
            if measure is not None and devices is not None:
                measured = MeasuredModel(str(measure), devices, None if input is None else str(input))
            num_processes = (
                1 if measured else processes or (len(allowed_cores()) if hosts is None else hosts.num_cores())
            )
            count = updates or (UPDATES if measured else _UPDATES)
            settings = TrainSettings.of(count, num_processes, seed or 0, ablations, measured, start is not None)
    end_s = math.inf if minutes is None else time.monotonic() + 60 * minutes
    control = RunControl(
        lambda: should_stop() or time.monotonic() >= end_s, process_group if hosts is None else hosts.process_group()
    )
    losses, saved, measured = 0, -1, settings.measured
    with nullcontext() if measured is None else executed_problem(measured, force, on_warning) as executed:
        if not resume:
            settings = _begin(files, settings, start)
        incumbent = None if executed is None else Incumbent(executed, files.folder)
        while True:
            try:
                state = _trained(files, settings, on_update, control, incumbent)
                card = _card(files, settings, state)
                if incumbent is not None and state.update == settings.training.ppo.num_updates:
                    card["executed"] = incumbent.judged()
                    save_policy(files.policy, state.network, card)
                return card
            except ProcessLost as lost:
                before, saved = saved, read_state(files.state).update
                losses = losses + 1 if saved == before else 1
                if hosts is None or losses == _MAX_LOSSES or control.should_stop():
                    raise
                on_warning(f"{str(lost).rpartition(';')[0]}; the run continues by itself from update {saved}")


def _known(given: str | Sequence[str] | None) -> tuple[Ablation, ...]:
    names = (given,) if isinstance(given, str) else given or ()
    known: tuple[Ablation, ...] = get_args(Ablation)
    for name in names:
        if name not in known:
            raise GnnplaceError(f"ablation is {name!r}; expected {', '.join(known)}, or several of them")
    return tuple(name for name in known if name in names)


def _check_measured(measure: str | Path | None, devices: str | None, processes: int | None, ray: str | None) -> None:
    if (measure is None) != (devices is None):
        raise GnnplaceError(
            "measure and devices belong together: a model to execute, and real devices such as cpu:0,cpu:1"
        )
    if measure is not None and (ray is not None or processes not in (None, 1)):
        raise GnnplaceError("measure executes placements in one process; leave processes and ray out")


def _refuse_changes(given: Mapping[str, object], settings: TrainSettings) -> None:
    training = settings.training
    stored = {
        "updates": training.ppo.num_updates, "processes": training.num_processes, "seed": training.seed,
        "policy": settings.start and settings.start.name, "ablation": ", ".join(settings.ablations) or None,
        "measure": settings.measured and settings.measured.model, "devices": settings.measured and settings.measured.devices,
        "input": settings.measured and settings.measured.input,
    }  # fmt: skip
    for name, value in given.items():
        if value is not None and value != stored[name]:
            raise GnnplaceError(
                f"{name} is {value}, but the run began with {stored[name]}; leave {name} out to resume it"
            )


def _begin(files: RunFiles, settings: TrainSettings, policy: Path | None) -> TrainSettings:
    """Writes the state before the first update, unless the same run has begun already; gives its settings."""
    if policy is None:
        network = build_policy(settings.training.seed, settings.policy)
        if settings.measured is not None:  # too few executions to learn everything
            begin_as_prior(network)
    else:
        network, _ = load_policy(policy)
        training = dataclasses.replace(settings.training, imitation_share=0.0)  # the policy is trained already
        if not network.decides:
            training = dataclasses.replace(training, lesson_problems=0)
        settings = dataclasses.replace(settings, training=training)
        start = StartPolicy(policy.name, hashlib.sha256(policy.read_bytes()).hexdigest())
        settings = dataclasses.replace(settings, policy=network.config, start=start)
    text = json.dumps(dataclasses.asdict(settings))
    if not files.state.exists():
        write_state(files.state, fresh_state(network, text))
        return settings
    state = read_state(files.state)
    if state.settings != text:
        raise InvalidRun(
            f"{files.folder}: holds another run with {state.update} updates; resume that one, or choose another folder"
        )
    return settings


def stored_settings(out: Path) -> TrainSettings:
    """The settings that the run in `out` began with.

    Raises:
        InvalidRun: there is no run, or one of another version.
    """
    path = RunFiles(out).state
    try:
        return TypeAdapter(TrainSettings).validate_json(read_state(path).settings)
    except ValidationError as error:
        raise InvalidRun(
            f"{path}: its settings are not those of this version ({error.errors()[0]['msg']}); start anew"
        ) from None


def _trained(
    files: RunFiles,
    settings: TrainSettings,
    on_update: Callable[[Row], None],
    control: RunControl,
    incumbent: Incumbent | None,
) -> RunState:
    """The state after all remaining updates."""
    sampled = SampledProblems(settings.training.seed, settings.problems)
    task = TrainingTask(
        sampled if incumbent is None else incumbent.problem,
        trace_searches,
        None if settings.training.lesson_problems == 0 else SampledProblems(settings.training.seed, settings.lessons),
        partial(lessons_of, config=settings.teaching),
    )
    of_updates = settings.training.ppo.num_updates
    with metrics_log(files.metrics, read_state(files.state).update) as write_row:
        complete: Callable[[Row], Row] | None = None
        if incumbent is not None:
            earlier = read_metrics(files.metrics)[-1:]
            complete = incumbent.with_executions(sum(row.count("executions") for row in earlier))

        def note(row: Row) -> None:
            row = row if complete is None else complete(row)
            write_row(row)
            on_update({**row, "of_updates": of_updates})

        def save(state: RunState) -> None:
            save_policy(files.policy, state.network, _card(files, settings, state))

        return train_data_parallel(files.state, task, settings.training, note, save, control)


def _card(files: RunFiles, settings: TrainSettings, state: RunState) -> dict[str, Any]:
    """Data, command, length and versions of a run."""
    training = settings.training
    start = f" --policy {settings.start.name}" if settings.start else ""
    measured = settings.measured
    data: dict[str, Any] = {
        "families": list(training_families()),
        **dataclasses.asdict(settings.problems),
        "lessons": dataclasses.asdict(settings.lessons),
    }
    amount = f"--processes {training.num_processes}"
    if measured is not None:
        data, amount = dataclasses.asdict(measured), f"--measure {measured.model} --devices {measured.devices}"
        amount += f" --input {measured.input}" if measured.input else ""
    without = "".join(f" --ablation {name}" for name in settings.ablations)
    return {
        "data": data,
        "command": f"gnnplace train --out {files.policy.name} --updates {training.ppo.num_updates} "
        f"{amount} --seed {training.seed}{start}{without}",
        "seed": training.seed,
        "training": dataclasses.asdict(training),
        "teaching": dataclasses.asdict(settings.teaching),
        "start": dataclasses.asdict(settings.start) if settings.start else None,
        "updates": state.update,
        "wall_s": state.wall_s,
        "versions": installed_versions(*_VERSIONED),
    }

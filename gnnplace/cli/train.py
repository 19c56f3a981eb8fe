"""`gnnplace train`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from gnnplace.cli.options import JsonOption, QuietOption, RayOption
from gnnplace.cli.output import NOTES, hint, note, print_answer, print_json, warn
from gnnplace.cli.progress import bar
from gnnplace.errors import GnnplaceError
from gnnplace.interruption import first_interrupt_noted
from gnnplace.training import Ablation
from gnnplace.units import format_s

__all__ = ["train"]

_UPDATES, _SEED = 600, 0
_QUIET_S = 10.0


def train(
    out: Annotated[
        Path, typer.Option(metavar="DIR|NAME.safetensors", help="folder of the run, or the policy to write")
    ],
    updates: Annotated[int | None, typer.Option(min=1, help=f"batches to learn from; {_UPDATES} if not given")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="as many as there are cores if not given")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="same seed and processes, same policy; 0 if not given")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    policy: Annotated[Path | None, typer.Option(help="a trained policy to start from")] = None,
    ablation: Annotated[
        Ablation | None,
        typer.Option(help="leave this out, to see what it is worth; nothing if not given"),
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="stop after so long; --resume goes on")] = None,
    ray: RayOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train one policy on many graphs and device sets, from the zoo's training families and at random.

    Ctrl-C ends it after the update that is under way, and saves; the same command goes on. Metrics are in metrics.jsonl, and in TensorBoard's event
    files where tensorboard is installed (pip install 'gnnplace[train]'). With --ray the processes are on the hosts of a cluster, as many as those have
    cores; the same seed and processes give the same policy as on one machine, and a run that loses one goes on from what was saved last.
    """
    from gnnplace.api.train import RunFiles, TrainSettings, begin_run, continue_run, stored_settings

    if resume:
        stored = stored_settings(out)
        fixed = stored.training
        given = {
            "--updates": updates, "--processes": processes, "--seed": seed, "--policy": policy and policy.name,
            "--ablation": ablation,
        }  # fmt: skip
        begun_with = {
            "--updates": fixed.ppo.num_updates, "--processes": fixed.num_processes, "--seed": fixed.seed,
            "--policy": stored.start and stored.start.name,
            "--ablation": stored.ablation,
        }  # fmt: skip
        _refuse_changes(given, begun_with)
    else:
        total = updates or _UPDATES
        if policy is not None and ablation is not None:
            raise GnnplaceError(
                f"--ablation {ablation}: the network of {policy.name} is as it is; leave one of the two out"
            )
        settings = TrainSettings.of(total, processes or _cores(ray), seed or _SEED, ablation)
        begin_run(out, settings, policy)
    end_s = None if minutes is None else time.monotonic() + 60 * minutes
    files, total = RunFiles(out), stored_settings(out).training.ppo.num_updates
    with first_interrupt_noted(on_first=_say_ending) as interrupted, _progress(total) as show:
        ends = lambda: interrupted() or (end_s is not None and time.monotonic() >= end_s)  # noqa: E731
        card = continue_run(out, show, ends, ray, lambda text: warn([text]))
    document = {
        "policy": str(files.policy),
        "metrics": str(files.metrics),
        "updates": card["updates"],
        "of_updates": total,
        "seed": card["seed"],
        "processes": card["training"]["num_processes"],
        "wall_s": card["wall_s"],
    }
    if json:
        print_json(document)
        return
    print_answer(f"{files.policy}: {card['updates']} of {total} updates in {format_s(card['wall_s'])}")
    print(f"metrics: {files.metrics}")
    if card["updates"] < total:
        hint(f"gnnplace train --out {out} --resume" + ("" if ray is None else f" --ray {ray}"))
    else:
        hint(f"gnnplace place MODEL --devices SPEC --policy {files.policy}")


def _cores(ray: str | None) -> int:
    """The number of cores of this machine, or of the cluster."""
    from gnnplace.api.search import hosts_at
    from gnnplace.devices.detect import allowed_cores

    hosts = hosts_at(ray)
    return len(allowed_cores()) if hosts is None else hosts.num_cores()


def _refuse_changes(given: Mapping[str, object], stored: Mapping[str, object]) -> None:
    """A run keeps what it was begun with.

    Raises:
        GnnplaceError: an option says something else.
    """
    for option, value in given.items():
        if value is not None and value != stored[option]:
            raise GnnplaceError(
                f"{option} {value}: the run was begun with {stored[option]}; leave {option} out to go on"
            )


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A bar on a terminal; elsewhere a line every few seconds."""
    last_s = -_QUIET_S
    best = -math.inf

    with bar("starting") as advance:

        def show(row: Mapping[str, Any]) -> None:
            nonlocal last_s, best
            saved = -math.expm1(-row["gain"])
            best = max(best, saved)
            done = row["update"] + 1
            advance(done / total, f"update {done} of {total}: searches save {saved:.1%}", f"best {best:.1%}")
            if NOTES.is_terminal or time.monotonic() - last_s < _QUIET_S:
                return
            last_s = time.monotonic()
            units = max(facts["units"] for facts in row["problems"])
            note(
                f"update {done}: searches save {saved:.1%} of the start, entropy {row['entropy']:.2f}, "
                f"up to {units} units, {format_s(row['wall_s'])}"
            )

        yield show


def _say_ending() -> None:
    note("ending after this update; Ctrl-C again ends at once, with the state that was saved last")

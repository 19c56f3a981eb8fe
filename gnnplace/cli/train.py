"""`gnnplace train`."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from gnnplace.cli.options import ForceOption, InputOption, JsonOption, QuietOption, RayOption
from gnnplace.cli.output import NOTES, bar, hint, note, print_answer, print_json, warn
from gnnplace.interruption import stop_requests
from gnnplace.training import Ablation
from gnnplace.units import format_s

_BETWEEN_LINES_S = 10.0


def train(
    out: Annotated[
        Path, typer.Option(metavar="DIR|NAME.safetensors", help="folder of the run, or the policy to write")
    ],
    updates: Annotated[
        int | None, typer.Option(min=1, help="batches to learn from; 200 if not given, 50 with --measure")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="number of processes; one per core if not given")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="same seed and processes, same policy; 0 if not given")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    policy: Annotated[
        str | None, typer.Option(metavar="shipped|FILE", help="a trained policy to start from: shipped, or its file")
    ] = None,
    ablation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help=f"part to leave out, to measure its effect: {', '.join(get_args(Ablation))}; may be repeated",
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="minutes after which training stops; --resume continues it")
    ] = None,
    measure: Annotated[
        str | None, typer.Option(metavar="MODEL", help="train on this model by executing its placements on --devices")
    ] = None,
    devices: Annotated[str | None, typer.Option(metavar="SPEC", help="real devices for --measure: cpu:0,cpu:1")] = None,
    input: InputOption = None,
    force: ForceOption = False,
    ray: RayOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train one policy on many graphs and device sets, from the zoo's training families and at random.

    Ctrl-C ends training after the current update and saves it; the same command, or --resume, continues. Metrics go to
    metrics.jsonl, and to TensorBoard's event files if tensorboard is installed. With --ray one process runs per core of the
    cluster; the same seed and number of processes give the same policy as on one machine. A run that loses a process
    continues from the last saved update. With --measure every evaluation executes a placement: 4 searches of 12 per update.
    """
    from gnnplace.api.training_run import RunFiles
    from gnnplace.api.training_run import train as run

    ending = "ending after this update; Ctrl-C again ends at once, with the state that was saved last"
    with stop_requests(on_first=lambda: note(ending)) as interrupted, _progress() as show:
        card = run(
            out, updates=updates, processes=processes, seed=seed, policy=policy, ablation=ablation, resume=resume,
            minutes=minutes, ray=ray, measure=measure, devices=devices, input=input, force=force,
            on_update=show, on_warning=lambda text: warn([text]), should_stop=interrupted,
        )  # fmt: skip
    files, total = RunFiles(out), card["training"]["ppo"]["num_updates"]
    if json:
        print_json({
            "policy": str(files.policy), "metrics": str(files.metrics), "updates": card["updates"], "of_updates": total,
            "seed": card["seed"], "processes": card["training"]["num_processes"], "wall_s": card["wall_s"],
            **card.get("executed", {}),
        })  # fmt: skip
        return
    print_answer(f"{files.policy}: {card['updates']} of {total} updates in {format_s(card['wall_s'])}")
    print(f"metrics: {files.metrics}")
    if executed := card.get("executed"):
        print(f"fastest placement: {files.folder / 'placement.json'}, {_faster(executed)}")
    if card["updates"] < total:
        hint(f"gnnplace train --out {out} --resume" + ("" if ray is None else f" --ray {ray}"))
    else:
        hint(f"gnnplace place {measure or 'MODEL'} --devices {devices or 'SPEC'} --policy {files.policy}")


def _faster(executed: Mapping[str, Any]) -> str:
    """The measured difference of the fastest placement to the start, in words."""
    if executed["difference_interval"] is None:
        return "which failed to run beside the start"
    if not executed["pairs"]:
        return "which is the start"
    low, high = executed["difference_interval"]
    return f"{executed['difference']:+.1%} against the start ({low:+.1%} to {high:+.1%})"


@contextmanager
def _progress() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A bar on terminals; elsewhere a line every few seconds."""
    last_s, best = -_BETWEEN_LINES_S, -math.inf

    with bar("starting") as advance:

        def show(row: Mapping[str, Any]) -> None:
            nonlocal last_s, best
            done, total = row["update"] + 1, row["of_updates"]
            if row["problems"]:
                saved = -math.expm1(-row["gain"])
                best = max(best, saved)
                units = max(facts["units"] for facts in row["problems"])
                short, long = (
                    f"searches save {saved:.1%}",
                    f" of the start, entropy {row['entropy']:.2f}, up to {units} units",
                )
                advance(done / total, f"update {done} of {total}: {short}", f"best {best:.1%}")
            else:
                short, long = f"imitation, loss {row['lesson_loss']:.2f}", ""
                advance(done / total, f"update {done} of {total}: {short}", "")
            if NOTES.is_terminal or time.monotonic() - last_s < _BETWEEN_LINES_S:
                return
            last_s = time.monotonic()
            note(
                f"update {done}: {short}{long}, {format_s(row['wall_s'])}"
                + (f", best of {row['executions']} executions {format_s(row['best_s'])}" if "executions" in row else "")
            )

        yield show

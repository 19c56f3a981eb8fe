"""The work of `gnnplace run`, and the console script; without typer, `run` is its only command."""

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.errors import GnnplaceError, MeasurementFailed, ProcessLost
from gnnplace.measuring.timing import measured_period, median_interval
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.running.feed import read_arrays, write_arrays
from gnnplace.running.session import Session
from gnnplace.units import format_s


def run_placed(
    session: Session,
    feed: dict[str, Any],
    output: Path | None,
    repeat: int,
    on_run: Callable[[int, float], None] = lambda number, best_s: None,
) -> dict[str, Any]:
    """Runs a placed model `repeat` times, then the same number of pipelined requests; gives the command's JSON.

    `on_run` receives the number of runs so far and the seconds of the fastest one.
    """
    seconds: list[float] = []
    for number in range(repeat):
        begin_s = time.perf_counter()
        outputs = session.run(None, feed)
        seconds.append(time.perf_counter() - begin_s)
        on_run(number + 1, min(seconds))
    period = measured_period(session, feed, repeat) if repeat > 1 else None
    by_name = dict(zip([info.name for info in session.get_outputs()], outputs, strict=True))
    if output is not None:
        write_arrays(output, by_name)
    interval = median_interval(np.array(seconds))
    return {
        "devices": session.get_devices(),
        "outputs": {
            name: {"shape": list(np.shape(value)), "dtype": str(np.asarray(value).dtype)}
            for name, value in by_name.items()
        },
        "median_s": interval.median,
        "spread_s": interval.spread,
        "repeats": repeat,
        "throughput_s": None if period is None else period.median,
        "throughput_spread_s": None if period is None else period.spread,
        "max_in_flight": session.max_in_flight,
        "output": None if output is None else str(output),
    }


def feed_for(placed: Path, input: Path | None, seed: int) -> dict[str, Any]:
    """The arrays of the `.npz` file `input`, else sample arrays for every input of the placed model."""
    if input is not None:
        return read_arrays(input)
    path = placed if placed.is_file() else placed / "placed.onnx"
    return dict(sample_inputs(read_onnx(path), np.random.default_rng(seed)))


def output_table(result: dict[str, Any]) -> list[list[str]]:
    """The head of a table, then name, shape and dtype of each output."""
    rows = ([name, str(facts["shape"]), facts["dtype"]] for name, facts in result["outputs"].items())
    return [["output", "shape", "dtype"], *rows]


def answer_lines(result: dict[str, Any]) -> list[str]:
    """The measured times in sentences."""
    devices, median = ", ".join(result["devices"]), format_s(result["median_s"])
    if result["repeats"] > 1:
        spread = format_s(result["spread_s"])
        lines = [f"{result['repeats']} runs on {devices}: {median} +- {spread} (median)"]
    else:
        lines = [f"1 run on {devices}: {median}; --repeat N measures it"]
    if result["throughput_s"] is not None:
        spread = f" +- {format_s(result['throughput_spread_s'])}" if result["throughput_spread_s"] else ""
        period = f"{format_s(result['throughput_s'])}{spread} per request"
        lines.append(f"pipelined, up to {result['max_in_flight']} at once: {period}")
    return lines


def main() -> None:
    """The console script: all commands, or only `run` if typer is not installed."""
    try:
        if importlib.util.find_spec("typer") is not None:
            from gnnplace.cli.main import main as all_commands

            all_commands()
        sys.exit(_run_alone(sys.argv[1:]))
    except KeyboardInterrupt:  # during the imports
        print("gnnplace: interrupted before there was an answer", file=sys.stderr)
        sys.exit(130)


def _run_alone(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "gnnplace", description="Only `run` works in this environment: pip install gnnplace adds the other commands."
    )
    run = parser.add_subparsers(dest="command", required=True).add_parser("run", help="run a placed model")
    run.add_argument(
        "folder", metavar="DIR|MODEL", type=Path, help="folder written by place --out, or its placed.onnx alone"
    )
    run.add_argument("--input", metavar="X.npz", type=Path, help="inputs by name; random ones if not given")
    run.add_argument("--output", metavar="Y.npz", type=Path, help="file for the outputs")
    run.add_argument("--repeat", type=int, default=1, help="number of runs")
    run.add_argument("--custom-ops", metavar="LIB.so", type=Path, action="append", default=[])
    run.add_argument("--seed", type=int, default=0, help="seed of random inputs")
    run.add_argument("--json", action="store_true", help="one JSON object on stdout")
    run.add_argument("--quiet", action="store_true", help="the answer without notes")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error(f"--repeat is {options.repeat}; expected at least 1")
    try:
        with Session(options.folder, custom_ops=options.custom_ops) as session:
            feed = feed_for(options.folder, options.input, options.seed)
            result = run_placed(session, feed, options.output, options.repeat)
    except GnnplaceError as error:
        print(f"gnnplace: {' '.join(str(error).split())}", file=sys.stderr)
        return 1 if isinstance(error, MeasurementFailed | ProcessLost) else 2
    except OSError as error:
        print(f"gnnplace: {error.filename or 'file system'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(json.dumps(result))
    else:
        lines = ["  ".join(row) for row in output_table(result)]
        print("\n".join([*lines, *answer_lines(result)]))
    return 0

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

from gnnplace.errors import GnnplaceError, InvalidInput, MeasurementFailed, ProcessLost
from gnnplace.files import read_json
from gnnplace.measuring.timing import measured_period, median_interval
from gnnplace.onnx_io.read import at_dims, read_onnx
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.shapes.tensor_info import assumption
from gnnplace.running.feed import read_arrays, write_arrays
from gnnplace.running.session import Session
from gnnplace.units import format_s


def run_placed(
    session: Session,
    feed: dict[str, Any],
    output: Path | None,
    repeat: int,
    on_run: Callable[[int, float], None] = lambda number, best_s: None,
    *,
    is_random: bool = False,
) -> dict[str, Any]:
    """Runs a placed model `repeat` times, then the same number of pipelined requests; gives the command's JSON.

    `on_run` receives the number of runs so far and the seconds of the fastest one.

    Raises:
        MeasurementFailed: the model cannot run with these inputs; the message names them if `is_random`.
    """
    seconds: list[float] = []
    for number in range(repeat):
        begin_s = time.perf_counter()
        try:
            outputs = session.run(None, feed)
        except MeasurementFailed as error:
            if not is_random:
                raise
            shapes = ", ".join(f"{name} {list(np.shape(value))}" for name, value in feed.items())
            mend = f"inputs are random, of shapes {shapes}; --dim NAME=N or --input X.npz gives others"
            raise MeasurementFailed(f"{error} ({mend})") from None
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


def feed_for(
    placed: Path, input: Path | None, seed: int, dims: Sequence[str] | None, on_warning: Callable[[str], None]
) -> dict[str, Any]:
    """The arrays of the `.npz` file `input`, else sample arrays for every input of the placed model.

    Sizes of sample arrays are those of `dims` (`NAME=N`), else those that the model was placed for; else 1, and `on_warning` hears
    of it.

    Raises:
        InvalidInput: a text of `dims` has another form, or there is an `input`.
        UnsupportedModel: the model has no such dimension.
    """
    stated = _sizes(dims or ())
    if input is not None:
        if stated:
            raise InvalidInput("--dim gives sizes to random inputs, but --input names a file; leave one of them out")
        return read_arrays(input)
    model = read_onnx(placed if placed.is_file() else placed / "placed.onnx", stated)
    if model.assumed:
        known = {name: size for name, size in _placed_for(placed).items() if name in model.assumed}
        model = at_dims(model, {**known, **stated}) if known else model
    for name in model.assumed:
        on_warning(assumption(name))
    return dict(sample_inputs(model, np.random.default_rng(seed)))


def _sizes(texts: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise InvalidInput(f"--dim {text!r}: expected NAME=N with a whole number, for example batch=4")
        sizes[name] = int(size)
    return sizes


def _placed_for(placed: Path) -> dict[str, int]:
    """The sizes of the first shape in the `run.json` of a folder, which its report shows too; none without a readable one."""
    try:
        shape = read_json(placed / "run.json", InvalidInput)["shapes"][0]["dims"]
        return {name: size for name, size in shape.items() if isinstance(size, int) and size >= 0}
    except (GnnplaceError, OSError, LookupError, TypeError, AttributeError):
        return {}


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


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


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
    run.add_argument("--dim", metavar="NAME=N", action="append", help="size of a symbolic dimension of random inputs")
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
            feed = feed_for(options.folder, options.input, options.seed, options.dim, _warn)
            result = run_placed(session, feed, options.output, options.repeat, is_random=options.input is None)
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

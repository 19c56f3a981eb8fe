"""The commands, and the edge at which every error becomes one line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated

import typer

from gnnplace import __version__
from gnnplace.cli.execute import profile, run
from gnnplace.cli.inspect import compare, devices, evaluate, planners
from gnnplace.cli.measure import bench
from gnnplace.cli.place import place, report
from gnnplace.cli.train import train
from gnnplace.cli.zoo import zoo
from gnnplace.errors import GnnplaceError, InfeasiblePlacement, MeasurementFailed, ProcessLost
from gnnplace.files import NO_ROOM, NO_WRITING

__all__ = ["app", "main"]

DONE, NO_ANSWER, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="gnnplace",
    help="Place ONNX models over devices: which device runs which op, so that one step takes the least time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (place, evaluate, compare, run, profile, devices, planners, report, train, bench, zoo):
    app.command()(command)


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="print the version")] = False
) -> None:
    """Place ONNX models over devices."""
    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(BAD_INPUT)


def main() -> None:
    """The console script."""
    code = _run(sys.argv[1:])
    gc.freeze()  # the process ends: looking through half a million objects of libraries for garbage takes seconds
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:  # typer makes that of Ctrl-C
            raise KeyboardInterrupt
        return code if isinstance(code, int) else DONE
    except (InfeasiblePlacement, MeasurementFailed, ProcessLost) as error:
        return _say(str(error), NO_ANSWER)
    except GnnplaceError as error:
        return _say(str(error), BAD_INPUT)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.TyperException as error:
        return _say(getattr(error, "format_message", error.__str__)(), BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted before there was an answer", INTERRUPTED)
    except BrokenPipeError:
        _drop_output()
        return DONE
    except MemoryError:
        return _say("this takes more memory than there is; take a smaller model or fewer devices", BAD_INPUT)
    except OSError as error:
        where = error.filename or ("file system" if _takes_output() else "standard output")
        return _say(f"{where}: {error.strerror or error}; {_advice(error)}", BAD_INPUT)
    except ImportError as error:
        return _say(f"{error}; the installation is not whole: pip install --force-reinstall gnnplace", BAD_INPUT)


def _takes_output() -> bool:
    """False where standard output is full or gone; what it did not take is dropped then."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
        return False
    return True


def _drop_output() -> None:
    """What standard output did not take would be tried, and fail, once more in the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _advice(error: OSError) -> str:
    if error.errno in NO_ROOM:
        return "make room or choose another place; what was there before is as it was"
    if error.errno in NO_WRITING:
        return "choose a place that may be written to; nothing was changed"
    return "nothing was half-written"


def _say(message: str, code: int) -> int:
    """One line on stderr, whatever the message holds."""
    print("gnnplace: " + " ".join(message.split()), file=sys.stderr)
    return code

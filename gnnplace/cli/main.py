"""The commands, and the edge at which every error becomes one line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated, Any

import typer

from gnnplace import __version__
from gnnplace.cli.completion import whole_words
from gnnplace.cli.doctor import doctor
from gnnplace.cli.examples import examples_of
from gnnplace.cli.execute import profile, run
from gnnplace.cli.inspect import compare, devices, evaluate, planners
from gnnplace.cli.measure import bench
from gnnplace.cli.output import error as say
from gnnplace.cli.place import place, report
from gnnplace.cli.train import train
from gnnplace.cli.zoo import zoo
from gnnplace.errors import GnnplaceError, InfeasiblePlacement, MeasurementFailed, ProcessLost
from gnnplace.files import NO_ROOM, NO_WRITING

__all__ = ["app", "main"]

DONE, NO_ANSWER, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

_HELP = {"help_option_names": ["-h", "--help"]}
_PANELS = {
    "Place and run": (place, run, compare, evaluate),
    "See what there is": (devices, planners, zoo, report, doctor),
    "Measure and learn": (profile, train, bench),
}

app = typer.Typer(
    name="gnnplace",
    help="Place ONNX models over devices: which device runs which op, so that one step takes the least time.",
    epilog=examples_of("gnnplace"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)
for panel, commands in _PANELS.items():
    for command in commands:
        name = command.__name__
        app.command(name, rich_help_panel=panel, epilog=examples_of(name), context_settings=_HELP)(command)


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
    with whole_words(os.environ):
        code = _run(sys.argv[1:])
    gc.freeze()  # the process ends: looking through half a million objects of libraries for garbage takes seconds
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments, prog_name="gnnplace", standalone_mode=False)
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
        return _say(_usage(error), BAD_INPUT)
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
        return _say(
            f"{error}; the installation is not whole: pip install --force-reinstall gnnplace (gnnplace doctor says more)",
            BAD_INPUT,
        )


def _usage(error: Any) -> str:
    """What is wrong with the command line, what was probably meant, and where to read more."""
    message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    if meant := getattr(error, "possibilities", None):
        message = f"{error.message}; did you mean {' or '.join(sorted(meant))}?"
    context = getattr(error, "ctx", None)
    return f"{message} (see {context.command_path} --help)" if context is not None else message


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
    say(message)
    return code

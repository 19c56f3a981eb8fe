"""The console script: its commands, and every error as one line and an exit code."""

import gc
import os
import sys
from typing import Annotated, Any

import typer

from gnnplace import __version__
from gnnplace.cli.completion import whole_words
from gnnplace.cli.examples import examples_of
from gnnplace.cli.inspect import devices, doctor, planners, records, report, zoo
from gnnplace.cli.measure import bench, profile, run
from gnnplace.cli.output import print_error
from gnnplace.cli.place import compare, evaluate, place
from gnnplace.cli.train import train
from gnnplace.errors import GnnplaceError, InfeasiblePlacement, MeasurementFailed, ProcessLost
from gnnplace.files import NO_ROOM, NO_WRITING

DONE, NO_ANSWER, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

_HELP = {"help_option_names": ["-h", "--help"]}
_PANELS = {
    "Place and run": (place, run, compare, evaluate),
    "See what there is": (devices, planners, zoo, records, report, doctor),
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
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # names that its encoding lacks
    with whole_words(os.environ):
        code = _run(sys.argv[1:])
    gc.freeze()  # otherwise the collector searches half a million objects at exit, which takes seconds
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """The exit code of a command; errors become one line on stderr."""
    try:
        code = app(arguments, prog_name="gnnplace", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:  # typer's exit code after Ctrl-C
            raise KeyboardInterrupt
        return code if isinstance(code, int) else DONE
    except (InfeasiblePlacement, MeasurementFailed, ProcessLost) as error:
        code, message = NO_ANSWER, str(error)
    except GnnplaceError as error:
        code, message = BAD_INPUT, str(error)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.TyperException as error:
        code, message = BAD_INPUT, _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        code, message = INTERRUPTED, "interrupted before there was an answer"
    except BrokenPipeError:
        _drop_output()
        return DONE
    except MemoryError:
        code, message = BAD_INPUT, "this takes more memory than there is; take a smaller model or fewer devices"
    except OSError as error:
        where = error.filename or ("file system" if _accepts_output() else "standard output")
        code, message = BAD_INPUT, f"{where}: {error.strerror or error}; {_advice(error)}"
    except ImportError as error:
        mend = "pip install --force-reinstall gnnplace (gnnplace doctor lists the missing parts)"
        code, message = BAD_INPUT, f"{error}; the installation is not whole: {mend}"
    print_error(message)
    return code


def _usage(error: Any) -> str:
    """The error in the command line, similar names, and the command that shows the help."""
    message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    if similar := getattr(error, "possibilities", None):
        message = f"{error.message}; did you mean {' or '.join(sorted(similar))}?"
    context = getattr(error, "ctx", None)
    return f"{message} (see {context.command_path} --help)" if context is not None else message


def _accepts_output() -> bool:
    """Whether standard output is neither full nor closed; otherwise the rest of the output is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
        return False
    return True


def _drop_output() -> None:
    """Redirects standard output to nowhere, since Python would write the rest again at exit, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _advice(error: OSError) -> str:
    if error.errno in NO_ROOM:
        return "make room or choose another place; what was there before is as it was"
    if error.errno in NO_WRITING:
        return "choose a place that may be written to; nothing was changed"
    return "nothing was half-written"

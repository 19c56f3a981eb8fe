"""`gnnplace doctor`."""

from __future__ import annotations

from dataclasses import asdict

import typer

from gnnplace.cli.options import JsonOption, QuietOption
from gnnplace.cli.output import hint, print_answer, print_json, print_table
from gnnplace.cli.progress import bar
from gnnplace.installation import checks

__all__ = ["doctor"]


def doctor(json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Check the installation, and say how to mend it. Exit code 1 where something that placing needs is broken."""
    found = []
    with bar("looking (compiles the first time)") as advance:
        for check in checks():
            found.append(check)
            advance(len(found) / (len(found) + 1), f"looked at {check.name}", "")
    broken = [check for check in found if check.state == "broken"]
    if json:
        print_json({"ok": not broken, "checks": [asdict(check) for check in found]})
    else:
        shown = [check for check in found if check.state != "ok" or not quiet]
        print_table(
            ["what", "", "found"],
            [[check.name, check.state, check.found + (f"\n-> {check.mend}" if check.mend else "")] for check in shown],
            {number: _STYLES[check.state] for number, check in enumerate(shown)},
        )
        missing = sum(check.state == "missing" for check in found)
        if broken:
            print_answer(f"{len(broken)} needed things are broken: {', '.join(check.name for check in broken)}")
            hint(broken[0].mend)
        else:
            print_answer(f"all that placing needs is there; {missing} optional things are missing")
            hint("gnnplace place MODEL --devices auto --measure --out placed")
    if broken:
        raise typer.Exit(1)


_STYLES = {"ok": "", "missing": "yellow", "broken": "bold red"}

"""Runs the session of the README in an empty folder: writes its Python files and runs its commands.

    python tests/readme_session.py README.md

A line that measures gets `--force`, so that it works on a busy machine; its figures are not checked.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEADING = "## From PyTorch to a placed model"
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)


def blocks(readme: str) -> list[tuple[str, str]]:
    """(language, text) of each block of the session."""
    found = BLOCK.findall(readme.partition(HEADING)[2].partition("\n## ")[0])
    if not found:
        raise SystemExit(f"the README has no block below {HEADING!r}")
    return found


def commands(block: str) -> list[str]:
    """The commands after each `$`."""
    return [
        line.removeprefix("$ ").partition("  # ")[0].rstrip() for line in block.splitlines() if line.startswith("$ ")
    ]


def main(readme: Path) -> None:
    session = blocks(readme.read_text(encoding="utf-8"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        for text in (text for language, text in session if language == "python"):
            name = text.splitlines()[0].removeprefix("# ").strip()
            (Path(folder) / name).write_text(text, encoding="utf-8")
        for text in (text for language, text in session if language == "console"):
            for line in commands(text):
                typed = f"{line} --force" if "--measure" in line else line
                print(f"$ {typed}", flush=True)
                done = subprocess.run(typed, shell=True, cwd=folder, env={**os.environ, "PATH": path}, check=False)
                if done.returncode:
                    raise SystemExit(f"{typed!r} ended with exit code {done.returncode}")
    print("the README's session works")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

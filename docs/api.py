"""Writes the pages of the API from the docstrings: python docs/api.py FOLDER."""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path

import pdoc.doc
import pdoc.render

import gnnplace

_LONGEST_VALUE = 300
"""Characters of a constant's value; the search index cannot hold words of thousands of characters."""


class _ShortValue(pdoc.doc.Variable):
    """A variable whose displayed value is shortened."""

    @property
    def default_value_str(self) -> str:
        whole = str(super().default_value_str)
        return whole if len(whole) <= _LONGEST_VALUE else f"{whole[:_LONGEST_VALUE]}..."


def main(folder: Path) -> None:
    """One page per module, with a search; source code stays in the repository."""
    for name in gnnplace.__all__:
        setattr(gnnplace, name, getattr(gnnplace, name))  # pdoc does not trigger the lazy loading
    found = pkgutil.walk_packages(gnnplace.__path__, "gnnplace.")
    modules = [module.name for module in found if not module.name.endswith("__main__")]
    pdoc.doc.Variable = _ShortValue
    pdoc.render.configure(docformat="google", show_source=False, footer_text=f"gnnplace {gnnplace.__version__}")
    pdoc.pdoc("gnnplace", *modules, output_directory=folder)
    print(f"{folder / 'index.html'}: {len(modules) + 1} modules")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

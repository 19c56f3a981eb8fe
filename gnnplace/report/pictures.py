"""Every picture of a report as a file, for papers."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Literal
from urllib.parse import unquote_to_bytes

from gnnplace.files import new_file
from gnnplace.report.browser_page import browser, drawn_page

__all__ = ["write_pictures"]

PictureFormat = Literal["svg", "png"]


def write_pictures(report: Path, folder: Path, picture_format: PictureFormat = "svg") -> list[Path]:
    """Writes each picture of `report.html` into `folder` as a browser draws it; their paths.

    Raises:
        MissingDependency: there is no browser to draw them.
    """
    paths = []
    with browser() as opened:
        page = drawn_page(opened, report)
        for name in page.evaluate("report.pictures()"):
            url = page.evaluate("([name, format]) => report.picture(name, format)", [name, picture_format])
            path = folder / f"{name}.{picture_format}"
            with new_file(path) as temporary:
                temporary.write_bytes(_content(url))
            paths.append(path)
    return paths


def _content(url: str) -> bytes:
    """What a data URL holds."""
    head, _, text = url.partition(",")
    return base64.b64decode(text) if head.endswith(";base64") else unquote_to_bytes(text)

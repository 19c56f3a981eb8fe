"""A report in a headless browser: its pictures as files, and a page for measuring how fast it opens."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote_to_bytes

from gnnplace.errors import MissingDependency
from gnnplace.files import new_file

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LONGEST_MS = 120_000


def chromium() -> str | None:
    """Path of the system's Chromium, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Opens the system's Chromium, or the one that Playwright installed.

    Raises:
        MissingDependency: Playwright or a Chromium is not installed.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise MissingDependency(
            "pictures need playwright, which is not installed; pip install 'gnnplace[pictures]'"
        ) from None
    with sync_playwright() as playwright:
        try:
            opened = playwright.chromium.launch(executable_path=chromium(), args=["--disable-gpu"])
        except Error as problem:
            raise MissingDependency(
                f"no Chromium could be started ({problem.message.splitlines()[0]}); install your system's, or: playwright install chromium"
            ) from None
        try:
            yield opened
        finally:
            opened.close()


def drawn_page(opened: Browser, report: Path) -> Page:
    """Opens a report and waits until its charts are drawn.

    Raises:
        MissingDependency: the browser could not draw the charts.
    """
    page = opened.new_page(viewport={"width": 1300, "height": 900})
    page.goto(report.resolve().as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached", timeout=_LONGEST_MS)
    if page.locator("html").get_attribute("data-drawn") != "yes":
        raise MissingDependency(f"Chromium {opened.version} could not draw {report}; install a current one")
    return page


PictureFormat = Literal["svg", "png"]


def write_pictures(report: Path, folder: Path, picture_format: PictureFormat = "svg") -> list[Path]:
    """Writes each picture of a report into `folder`; returns their paths. Raises as `browser` and `drawn_page`."""
    paths = []
    with browser() as opened:
        page = drawn_page(opened, report)
        for name in page.evaluate("report.pictures()"):
            url = page.evaluate("([name, format]) => report.picture(name, format)", [name, picture_format])
            path = folder / f"{name}.{picture_format}"
            with new_file(path) as temporary:
                head, _, text = url.partition(",")
                temporary.write_bytes(base64.b64decode(text) if head.endswith(";base64") else unquote_to_bytes(text))
            paths.append(path)
    return paths

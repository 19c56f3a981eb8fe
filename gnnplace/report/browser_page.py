"""A report in a browser without a window: for pictures of it, and for measuring how long it takes to open."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gnnplace.errors import MissingDependency

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser", "chromium", "drawn_page"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LONGEST_MS = 120_000


def chromium() -> str | None:
    """Where the system's Chromium is; None where it has none."""
    return next((path for path in map(shutil.which, _NAMES) if path is not None), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """The system's Chromium, else the one that Playwright has installed.

    Raises:
        MissingDependency: Playwright or a Chromium is not installed.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise MissingDependency(
            "pictures are made by a browser through playwright, which is not installed; pip install 'gnnplace[pictures]'"
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


def drawn_page(opened: Browser, report: Path, width: int = 1300, height: int = 900) -> Page:
    """A page with a report whose charts are drawn; `width` and `height` in pixels.

    Raises:
        MissingDependency: the browser could not draw them.
    """
    page = opened.new_page(viewport={"width": width, "height": height})
    page.goto(report.resolve().as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached", timeout=_LONGEST_MS)
    if page.locator("html").get_attribute("data-drawn") != "yes":
        raise MissingDependency(f"Chromium {opened.version} could not draw {report}; install a current one")
    return page

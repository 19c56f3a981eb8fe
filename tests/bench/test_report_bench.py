"""The bench of reports opens real reports in a real browser and measures their sizes."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'gnnplace[pictures]'")

from gnnplace.bench.harness import BenchOptions
from gnnplace.bench.report import bench_report
from gnnplace.report.pictures import chromium

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed; apt install chromium")


def test_a_row_has_the_size_of_a_report_and_the_times_of_every_action() -> None:
    result = bench_report(BenchOptions(), sizes=(30, 600), pages=1)
    few, many = result.rows
    assert (few["ops"], few["groups"], few["open_group_ms"]) == (30, 30, None)
    assert many["ops"] == 600
    assert many["groups"] < 600
    assert many["run_bytes"] > few["run_bytes"]
    assert min(many[name] for name in ("open_ms", "zoom_ms", "search_ms", "open_group_ms")) > 0
    assert result.summary["slowest_open_ms"] >= many["open_ms"]

"""`gnnplace bench report`: sizes of reports, and the time to open them, to zoom, to search and to open a group in a browser.

Random graphs of layers (Topcuoglu et al. 2002) are placed on four GPUs and their host, and their reports open in headless
Chromium without a GPU. Opening counts from the navigation until everything is drawn. Every figure is the median of several
fresh pages.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api import place
from gnnplace.bench.harness import BenchOptions, BenchResult
from gnnplace.files import temporary_folder
from gnnplace.report.pictures import browser, drawn_page

SIZES = (100, 2_000, 30_000)
_DEVICES = "k40x4"
_PAGES = 5
_EVALUATIONS = 300
_ACTIONS = {
    "open_ms": "report.drawn_ms",
    # From setting a new range until its bars are drawn.
    "zoom_ms": """new Promise(done => {
        const chart = document.getElementById("schedule-chart"), [, end] = chart.layout.xaxis.range, begin = performance.now();
        let drawn = 0;
        chart.on("plotly_afterplot", () => { if (++drawn === 2) done(performance.now() - begin); });
        Plotly.relayout(chart, {"xaxis.range": [0.5 * end, 0.6 * end]});
    })""",
    "search_ms": """new Promise(done => {
        const input = document.getElementById("graph-search"), begin = performance.now();
        new MutationObserver(() => requestAnimationFrame(() => done(performance.now() - begin)))
            .observe(document.getElementById("graph-found"), {childList: true});
        input.value = "Conv";
        input.dispatchEvent(new Event("input"));
    })""",
    "open_group_ms": """new Promise(done => {
        const groups = report.cy.nodes(".group"), begin = performance.now();
        if (!groups.length) done(null);
        groups[0]?.emit("tap");
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - begin)));
    })""",
}


def bench_report(options: BenchOptions, sizes: tuple[int, ...] = SIZES, pages: int = _PAGES) -> BenchResult:
    """A row per number of ops, with medians over `pages` openings; needs a browser, see `gnnplace.report.pictures.browser`."""
    rows = []
    with temporary_folder() as folder, browser() as opened:
        for size in sizes:
            rows.append(_row(opened, folder / str(size), size, options.seed, pages))
            options.on_progress(f"{size:,} ops: open after {rows[-1]['open_ms']:,.0f} ms")
        version = opened.version
    summary = {
        "browser": f"Chromium {version}",
        "pages": pages,
        "devices": _DEVICES,
        "slowest_open_ms": max(row["open_ms"] for row in rows),
        "largest_report_bytes": max(row["report_bytes"] for row in rows),
    }
    return BenchResult("report", options, rows, summary)


def _row(opened: Any, folder: Path, size: int, seed: int, pages: int) -> dict[str, Any]:
    from models_zoo.networks.generated.layered import Settings, layered

    graph = layered(Settings(num_ops=size), np.random.default_rng(seed))
    plan = place(graph, _DEVICES, evaluations=_EVALUATIONS, seed=seed)
    begin_s = time.perf_counter()
    plan.save(folder)
    save_s = time.perf_counter() - begin_s
    report = folder / "report.html"
    found: dict[str, list[float]] = {name: [] for name in _ACTIONS}
    for _ in range(pages):
        page = drawn_page(opened, report)
        for name, script in _ACTIONS.items():
            value = page.evaluate(script)
            if value is not None:
                found[name].append(value)
        page.close()
    return {
        "ops": size,
        "groups": plan.setup.coarsening.graph.num_ops,
        "report_bytes": report.stat().st_size,
        "run_bytes": (folder / "run.json").stat().st_size,
        "save_s": save_s,
        **{name: statistics.median(values) if values else None for name, values in found.items()},
        "slowest_open_ms": max(found["open_ms"]),
    }

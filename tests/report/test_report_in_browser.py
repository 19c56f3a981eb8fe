"""A report works in a real browser: no error, no script from a name, the numbers of the run; hover, search, zoom and collapse."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'gnnplace[pictures]'")

from gnnplace.report.page import write_report
from gnnplace.report.pictures import browser, chromium, drawn_page
from gnnplace.run_record import RunRecord
from tests.example_run import chain_run, empty_run, older_run
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed; apt install chromium")

HOSTILE = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>&quot;${window.hacked=1}'
PHONE = 390


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture
def page_of(opened: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens the report of a run; no page may fail or request anything from a network."""
    pages, problems = [], []

    def open_report(run: RunRecord, width: int = 1300, scheme: str = "light") -> Any:
        path = write_report(run, tmp_path)
        page = opened.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: message.type in {"error", "warning"} and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        inside = ("file:", "data:", "blob:")
        page.on("request", lambda request: request.url.startswith(inside) or problems.append(request.url))
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=1000 * PATIENCE_S)
        pages.append(page)
        return page

    yield open_report
    for page in pages:
        page.close()
    assert problems == []


def wait_until(page: Any, condition: str) -> None:
    """Evaluates a condition until it is true; the page itself may not evaluate texts."""
    for _ in range(int(10 * PATIENCE_S)):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"never came true: {condition}")


def bars(page: Any) -> list[tuple[str, float, float]]:
    """(row, start, end) of every bar of the schedule, without the critical path."""
    script = """document.getElementById('schedule-chart').data.filter(trace => trace.name !== 'critical path')
        .flatMap(trace => trace.base.map((start, place) => [trace.name, start, start + trace.x[place]]))"""
    return [tuple(bar) for bar in page.evaluate(script)]


def node_at(page: Any, name: str) -> tuple[float, float]:
    """Position of a node of the graph on the screen, once the node no longer moves."""
    wait_until(page, f"report.cy.getElementById({json.dumps(name)}).nonempty()")
    before, place = None, _place(page, name)
    while place != before:
        page.wait_for_timeout(100)
        before, place = place, _place(page, name)
    return place


def _place(page: Any, name: str) -> tuple[float, float]:
    page.locator("#graph-chart").scroll_into_view_if_needed()
    box = page.locator("#graph-chart").bounding_box()
    place = page.evaluate("name => report.cy.getElementById(name).renderedPosition()", name)
    return box["x"] + place["x"], box["y"] + place["y"]


def over_first_bar(page: Any) -> None:
    """Moves the mouse over the first bar of the schedule."""
    area = page.locator("#schedule-chart .nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 6, box["y"] + box["height"] / 6, steps=3)
    page.wait_for_selector("#schedule-chart .hoverlayer .hovertext")


def node_names(page: Any) -> list[str]:
    return sorted(page.evaluate("report.cy.nodes().map(node => node.id())"))


def test_the_schedule_shows_every_op_and_transfer_of_the_run_at_its_time(run: RunRecord, page_of: Any) -> None:
    page = page_of(run)
    found = [(row, round(start, 9), round(end, 9)) for row, start, end in bars(page)]
    assert found == [("gpu:0", 0, 2), ("gpu:0", 2, 3), ("cpu:0", 3, 6), ("pcie", 2, 3)]
    script = """(() => {
        const trace = document.getElementById('schedule-chart').data.find(one => one.name === 'critical path');
        return [trace.y.map(Math.floor), trace.base, trace.x];
    })()"""
    rows, starts, lengths = page.evaluate(script)
    assert rows == [0, 1, 2]
    assert starts == pytest.approx([0, 3, 2])
    assert lengths == pytest.approx([2, 3, 1])


def test_the_other_charts_show_the_numbers_of_the_run(run: RunRecord, page_of: Any) -> None:
    page = page_of(run)
    assert page.evaluate("JSON.stringify(report.run.summary)") == page.evaluate(
        "one => JSON.stringify(one)", run["summary"]
    )
    memory = page.evaluate("document.getElementById('memory-chart').data.map(trace => Array.from(trace.y))")
    assert memory == [[2, 1, 1], [512, 768, 768]]
    best = page.evaluate("Array.from(document.getElementById('progress-chart').data[0].y)")
    assert best == pytest.approx([1e3 * value for _, _, value in run["history"]])


def test_many_bars_are_stretches_until_they_are_zoomed_in_on(page_of: Any) -> None:
    page = page_of(chain_run(6000, group_size=10))
    whole = bars(page)
    assert len(whole) == 2
    assert sum(end - start for _, start, end in whole) == pytest.approx(6)
    page.evaluate("Plotly.relayout('schedule-chart', {'xaxis.range': [1.0, 1.1]})")
    wait_until(page, "document.getElementById('schedule-chart').data[0].x.length > 90")
    part = bars(page)
    assert 100 <= len(part) <= 103
    assert all(end - start == pytest.approx(1e-3) for _, start, end in part)
    page.evaluate("Plotly.relayout('schedule-chart', {'xaxis.autorange': true})")
    wait_until(page, "document.getElementById('schedule-chart').data[0].x.length === 1")


def test_dragging_over_the_schedule_zooms_and_a_double_click_shows_all(run: RunRecord, page_of: Any) -> None:
    page = page_of(run)
    box = page.locator("#schedule-chart .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20, steps=5)
    page.mouse.up()
    wait_until(page, "document.getElementById('schedule-chart').layout.xaxis.range[0] > 1")
    start, end = page.evaluate("document.getElementById('schedule-chart').layout.xaxis.range")
    assert (start, end) == (pytest.approx(1.5, abs=0.1), pytest.approx(3.0, abs=0.1))


def test_hovering_over_a_bar_or_a_node_shows_the_properties_of_the_op(run: RunRecord, page_of: Any) -> None:
    page = page_of(run)
    over_first_bar(page)
    assert "conv" in page.locator("#schedule-chart .hoverlayer").text_content()
    page.mouse.move(*node_at(page, "n1"), steps=3)
    page.wait_for_selector("#graph-tip:visible")
    assert page.locator("#graph-tip").inner_text().splitlines() == [
        "add", "type: Add", "device: cpu:0", "from 3.00 ms to 6.00 ms (3.00 ms)", "cost: 3.00 ms on k40, 3.00 ms on cpu:0",
        "weights: 512 B", "may move to any device",
    ]  # fmt: skip


def test_a_group_opens_into_its_ops_and_closes_again(run: RunRecord, page_of: Any) -> None:
    page = page_of(run)
    assert node_names(page) == ["n0", "n1"]
    page.mouse.click(*node_at(page, "n0"))
    wait_until(page, "report.cy.nodes().length === 4")
    assert node_names(page) == ["n0", "n1", "o0", "o1"]
    assert sorted(page.evaluate("report.cy.edges().map(edge => edge.id())")) == ["o0 n1", "o0 o1"]
    page.mouse.click(*node_at(page, "o0"))
    details = page.locator("#graph-details").inner_text()
    assert "shapes: float32[1,3] -> float32[1,8]" in details
    assert "why it may not move: Only gpu:0 can run it." in details
    page.click("text=close all")
    assert node_names(page) == ["n0", "n1"]
    page.click("text=open all")
    assert node_names(page) == ["n0", "n1", "o0", "o1"]


def test_opened_groups_and_other_nodes_do_not_overlap(page_of: Any) -> None:
    page = page_of(chain_run(100, group_size=10))
    page.click("text=open all")
    overlaps = page.evaluate(
        "(() => { const boxes = report.cy.nodes(':orphan').map(node => node.boundingBox({includeLabels: false})); let count = 0;"
        "boxes.forEach((one, place) => boxes.slice(place + 1).forEach(other => {"
        "if (one.x1 < other.x2 && other.x1 < one.x2 && one.y1 < other.y2 && other.y1 < one.y2) count++; })); return count; })()"
    )
    assert overlaps == 0


def test_an_op_is_found_by_name_and_shown_in_its_opened_group(run: RunRecord, page_of: Any) -> None:
    page = page_of(run)
    page.fill("#graph-search", "REL")
    page.wait_for_selector("#graph-found button")
    assert page.locator("#graph-found").inner_text().split() == ["1", "ops", "relu", "(Relu)"]
    page.click("#graph-found button")
    assert node_names(page) == ["n0", "n1", "o0", "o1"]
    assert page.evaluate("report.cy.$(':selected').map(node => node.id())") == ["o1"]
    assert page.locator("#graph-details").inner_text().startswith("relu")
    page.fill("#graph-search", "nothing of this name")
    wait_until(page, "document.getElementById('graph-found').textContent === '0 ops'")


def test_light_and_dark_differ_and_text_stands_out_in_both(run: RunRecord, page_of: Any) -> None:
    for scheme, ground, text in (("light", 255, 28), ("dark", 20, 230)):
        page = page_of(run, scheme=scheme)
        body, tick = "document.body", "document.querySelector('#schedule-chart .xtick text')"
        parts = ((body, "backgroundColor", ground), (body, "color", text), (tick, "fill", text))
        for element, part, expected in parts:
            assert page.evaluate(f"+getComputedStyle({element}).{part}.match(/[0-9]+/)[0]") == expected
    page.emulate_media(color_scheme="light")
    wait_until(page, "/28, ?31, ?38|1c1f26/.test(JSON.stringify(report.cy.style().json()))")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_sees_all_without_scrolling_sideways(run: RunRecord, page_of: Any, scheme: str) -> None:
    run["ops"]["name"] = [f"{name}{'/long' * 60}" for name in run["ops"]["name"]]
    run["summary"]["model"] = "m" * 300
    run["steps"][0]["moves"] = [("n" * 300, 0, 1)]
    page = page_of(run, PHONE, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE
    page.fill("#graph-search", "long")
    page.wait_for_selector("#graph-found button")
    page.click("#graph-found button")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE


def test_names_from_a_model_are_text_wherever_they_are_drawn(run: RunRecord, page_of: Any) -> None:
    run["ops"]["name"] = [f"{name}{HOSTILE}" for name in run["ops"]["name"]]
    run["ops"]["type"] = run["ops"]["shapes"] = run["ops"]["held"] = [HOSTILE] * 3
    run["summary"]["model"] = run["transfers"][0]["tensor"] = run["transfers"][0]["channel"] = HOSTILE
    run["devices"][0]["name"] = run["devices"][0]["kind"] = HOSTILE
    run["stages"][0], run["steps"][0]["kind"], run["warnings"] = (HOSTILE, 0.007), HOSTILE, [HOSTILE]
    page = page_of(run)
    page.mouse.click(*node_at(page, "n0"))
    page.mouse.move(*node_at(page, "o0"), steps=3)
    page.wait_for_selector("#graph-tip:visible")
    page.fill("#graph-search", "onerror")
    page.wait_for_selector("#graph-found button")
    page.locator("#graph-found button").first.click()
    over_first_bar(page)
    assert "<img src=x" in page.locator("#graph-details").inner_text()
    pictures = page.evaluate("Promise.all(report.pictures().map(name => report.picture(name, 'svg')))")
    assert len(pictures) == 4
    assert page.evaluate("[window.hacked === undefined, document.querySelectorAll('img').length]") == [True, 0]


def test_a_record_of_an_older_version_is_drawn(page_of: Any) -> None:
    page = page_of(older_run())
    assert len(bars(page)) == 4
    about = ["conv", "type: Conv", "device: gpu:0", "from 0 ns to 2.00 ms (2.00 ms)", "weights: 1.0 KiB"]
    assert page.evaluate("report.aboutOp(0)") == about


def test_an_empty_graph_is_drawn(page_of: Any) -> None:
    assert node_names(page_of(empty_run())) == []


def test_drawn_page_returns_the_page_once_all_is_drawn(run: RunRecord, opened: Any, tmp_path: Path) -> None:
    page = drawn_page(opened, write_report(run, tmp_path))
    assert page.evaluate("report.drawn_ms") > 0
    page.close()

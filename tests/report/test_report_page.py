"""A report shows the numbers of its run, needs no network, and lets no name from a model act."""

import base64
import copy
import gzip
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

import gnnplace.report
from gnnplace.report.answer import speed
from gnnplace.report.page import render_report, write_report
from gnnplace.report.run_charts import executed_steps_chart
from gnnplace.run_record import ExecutedStepRecord, RunRecord
from tests.example_run import empty_run, older_run

HOSTILE = "<script>alert(1)</script>"
VENDOR = Path(gnnplace.report.__file__).parent / "vendor"


def unpacked(page: str, name: str) -> str:
    """A text that the page carries compressed."""
    content = re.search(rf'id="{name}">([^<]*)<', page)[1]
    return gzip.decompress(base64.b64decode(content)).decode()


class Page(HTMLParser):
    """The text outside scripts and styles, the scripts, and every address that a tag refers to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.addresses: list[str] = []
        self._tag = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        if tag == "script":
            self.scripts.append("")
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action")]

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag == "script":
            self.scripts[-1] += data
        elif self._tag != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_states_the_answer_and_every_planner(run: RunRecord) -> None:
    text = Page(render_report(run)).text
    assert (
        "tiny is 1.50x faster than the best single device: one step takes 6.00 ms (simulated) instead of 9.00 ms, on 2 of 2 devices. "
        "No placement can take less than 5.00 ms (critical path): the gap is 20.0 %." in text
    )
    assert "gnn kept 6.00 ms 20.0 % 40 1.50 s single 9.00 ms 80.0 % 2 10.0 ms metis" in text
    assert "pymetis is missing" in text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(
            lambda run: run["planners"][0].update(evaluations=0, wall_s=0.0), "single 9.00 ms 80.0 % – –",
            id="a planner without evaluations",
        ),
        pytest.param(
            lambda run: run["summary"].update(gap=-0.3),
            "No placement can take less than 5.00 ms (critical path): the machine was slower when it was profiled.",
            id="an answer below the bound",
        ),
        pytest.param(
            lambda run: run["summary"].update(gap=-0.0004),
            "No placement can take less than 5.00 ms (critical path): the gap is 0.0 %.", id="an answer equal to the bound",
        ),
        pytest.param(
            lambda run: run["planners"][0].update(makespan_s=None), "no time of a single device is known",
            id="no single device",
        ),
        pytest.param(
            lambda run: [row.update(throughput_s=0.004) for row in (run["summary"], run["planners"][0])] and run["summary"].update(objective="throughput"),
            "tiny is as fast as the best single device: each of many pipelined steps takes 4.00 ms (simulated), on",
            id="throughput",
        ),
        pytest.param(
            lambda run: run["planners"][0].update(throughput_s=0.004), "single 4.00 ms 80.0 %", id="throughput of a planner",
        ),
        pytest.param(lambda run: run["summary"].update(model="$style"), "$style is 1.50x faster than", id="a dollar sign"),
    ],
)  # fmt: skip
def test_rare_values_have_text_of_their_own(run: RunRecord, change: Callable[[RunRecord], object], text: str) -> None:
    change(run)
    assert text in Page(render_report(run)).text


def test_the_page_states_memory_stages_warnings_and_how_it_was_made(run: RunRecord) -> None:
    text = Page(render_report(run)).text
    assert "gpu:0 k40 2 2.0 KiB of 4.0 KiB 50.0 %" in text
    assert "cpu:0 1 768 B no limit" in text
    assert "heft 7.00 ms – 2 sweep 1 6.00 ms 1.00 ms (14.3 %) 1" in text
    assert "Critical path: 2 ops for 5.00 ms and 1 transfers for 1.00 ms (16.7 % of the step)" in text
    assert "dimension 'batch' is not given; 1 is taken" in text
    assert "gnnplace place tiny.onnx --devices k40x1" in text
    assert "gnnplace 0.1.0, onnx 1.23.2" in text


def test_measured_runs_are_called_measured_and_compared_with_the_plain_session(run: RunRecord) -> None:
    run["measured"] = {
        "median_s": 0.008, "spread_s": 0.0001, "repeats": 21, "single_session_s": 0.010,
        "runs": [
            {"label": "plain session", "median_s": 0.010, "spread_s": 0.0002, "repeats": 21},
            {"label": "gnn", "median_s": 0.008, "spread_s": 0.0001, "repeats": 21},
        ],
        "search": {"executed": 1250, "recalled": 3, "executing_s": 1.5, "wall_s": 2.0, "failed": 4, "retried": 2},
    }  # fmt: skip
    text = Page(render_report(run)).text
    assert (
        "tiny is 1.25x faster than a plain session on the best single device (by 1.21x to 1.29x, from the 95 % intervals of both): "
        "one step takes 8.00 ms ± 100 us (measured, 21 repeats) instead of 10.0 ms, on 2 of 2 devices. By the cost model"
        in text
    )
    run["measured"] |= {"best_session_s": 0.012, "best_session": "cpu:0-1[spinning=1]"}
    best = "1.50x faster than the best plain session (cpu:0-1[spinning=1]): one step takes 8.00 ms ± 100 us (measured, 21 repeats) instead of 12.0 ms"
    assert best in Page(render_report(run)).text
    run["measured"]["best_session_s"] = 0.008
    equal = "as fast as the best plain session (cpu:0-1[spinning=1]): one step takes 8.00 ms ± 100 us (measured, 21 repeats), on"
    assert equal in Page(render_report(run)).text
    assert "After these rounds" not in text
    run["measured"] |= {"difference": -0.0204, "difference_interval": (-0.041, 0.001)}
    pairs = "the placement's time differs by -2.0 % (95 % interval -4.1 to +0.1 %)"
    assert f"These decide about the answer: {pairs}" in Page(render_report(run)).text
    run["measured"]["best_session_s"] = 0.0082
    assert f"and give its time at the top of this page: {pairs}" in Page(render_report(run)).text
    assert "one step (measured)" in text
    assert "one step (simulated)" not in text
    assert "gnn 8.00 ms ± 100 us 21 1.25x faster than the first" in text
    assert (
        "executed 1,250 placements and knew 3 from earlier runs. 4 failed. It replaced 2 lost measuring processes. "
        "Models ran for 1.50 s of its 2.00 s (75.0 %)" in text
    )


def test_the_planner_whose_placement_is_kept_is_marked_and_not_the_requested_one(run: RunRecord) -> None:
    assert "gnn kept" in Page(render_report(run)).text
    run["kept"] = "single"
    text = Page(render_report(run)).text
    assert "single kept" in text
    assert "gnn kept" not in text


def test_the_page_of_a_run_without_an_answer_names_the_missing_memory(run: RunRecord) -> None:
    run["summary"]["feasible"] = False
    run["peak_memory_bytes"]["gpu:0"] = 8192
    text = Page(render_report(run)).text
    assert "found no placement of tiny that fits in memory" in text
    assert "8.0 KiB of 4.0 KiB 200.0 % does not fit" in text


def test_names_from_a_model_are_shown_and_never_act(run: RunRecord) -> None:
    plain = Page(render_report(copy.deepcopy(run)))
    run["summary"]["model"] = run["command"] = HOSTILE
    run["ops"]["name"][0] = run["ops"]["type"][1] = run["transfers"][0]["tensor"] = HOSTILE
    run["devices"][0]["name"] = run["devices"][0]["kind"] = run["transfers"][0]["channel"] = HOSTILE
    run["planners"][0]["planner"] = run["planners"][2]["error"] = run["warnings"][0] = HOSTILE
    run["stages"][0] = (HOSTILE, 0.007)
    run["steps"][0]["kind"] = HOSTILE
    run["steps"][0]["moves"] = [(HOSTILE, 0, 1)]
    run["versions"] = {HOSTILE: HOSTILE}
    run["lower_bound"] = {"value_s": 0.005, "name": HOSTILE}
    page = render_report(run)
    assert HOSTILE not in page
    assert len(Page(page).scripts) == len(plain.scripts)
    assert Page(page).text.count(HOSTILE) >= 9


def test_times_of_zero_are_compared() -> None:
    assert [speed(0.0, 1.0), speed(1.0, 0.0), speed(0.0, 0.0)] == ["faster than", "slower than", "as fast as"]


def test_the_page_refers_to_nothing_outside_itself(run: RunRecord) -> None:
    page = render_report(run)
    assert Page(page).addresses == []
    assert "default-src 'none'" in page
    assert '"sendChartToCloud"' in page  # a button that is taken away


def test_the_page_carries_the_whole_run_and_its_libraries(run: RunRecord) -> None:
    page = render_report(run)
    assert json.loads(unpacked(page, "data"))["run"] == json.loads(json.dumps(run))
    assert all(
        f" {name}" in unpacked(page, library)[:200]
        for library, name in (("plotly-basic", "plotly.js"), ("cytoscape", "The Cytoscape"))
    )
    assert unpacked(page, "dagre") == (VENDOR / "dagre.min.js").read_text(encoding="utf-8")


def test_every_library_has_its_licence_beside_it() -> None:
    libraries = sorted(path.name.removesuffix(".min.js") for path in VENDOR.glob("*.js"))
    assert libraries == ["cytoscape", "dagre", "plotly-basic"]
    for name in libraries:
        assert "Permission is hereby granted" in (VENDOR / f"{name}.LICENSE").read_text(encoding="utf-8")


def test_plotly_is_the_release_that_the_other_pages_carry() -> None:
    version = re.compile(r"plotly\.js (?:\(basic - minified\) )?v([0-9.]+)")
    ours, theirs = (VENDOR / "plotly-basic.min.js").read_text(encoding="utf-8"), get_plotlyjs()
    assert version.search(ours)[1] == version.search(theirs)[1]


def test_the_steps_of_the_policy_list_moves_and_their_probability(run: RunRecord) -> None:
    text = Page(render_report(run)).text
    assert "30 1.00 ms one unit 1 add gpu:0 → cpu:0 25 % 2.0x uniform" in text
    assert "Steps that improved the best placement: 1, by 1.00 ms in total (simulated)" in text
    run["steps"][0]["probability"] = None
    assert "add gpu:0 → cpu:0 not used" in Page(render_report(run)).text
    run["steps"] = []
    assert "No policy chose steps of this placement" in Page(render_report(run)).text


def test_executed_steps_are_counted_and_drawn_with_their_intervals(run: RunRecord) -> None:
    assert "executed-chart" not in render_report(run)
    step: ExecutedStepRecord = {
        "evaluations": 4, "kind": "policy", "moved": 1, "moves": [("add", 0, 1)], "difference": -0.03,
        "difference_interval": (-0.04, -0.01), "pairs": 12, "kept": True,
    }  # fmt: skip
    failed: ExecutedStepRecord = {**step, "difference": None, "difference_interval": None, "pairs": 0, "kept": False}
    run["executed_steps"] = [
        step,
        {**step, "difference": 0.01, "difference_interval": (-0.01, 0.02), "kept": False},
        failed,
    ]
    page = render_report(run)
    assert "executed-chart" in page
    text = Page(page).text
    assert (
        "Changes executed in turns with the placement before them: 3. Kept, as the interval of the difference shows that they are faster: 1."
        in text
    )
    assert "1 failed to run." in text
    figure = executed_steps_chart(run)
    assert figure is not None
    kept, back = figure.data
    assert (list(kept.y), list(back.y)) == ([-3.0], [1.0])
    assert list(kept.error_y.array) == pytest.approx([2.0])
    assert list(kept.error_y.arrayminus) == pytest.approx([1.0])
    run["executed_steps"] = [{**step, "difference": 0.5, "difference_interval": (0.4, 0.6), "kept": False}]
    alone = executed_steps_chart(run)
    assert alone is not None
    assert list(alone.data[1].y) == [50.0]


def test_a_record_of_an_older_version_has_a_report() -> None:
    text = Page(render_report(older_run())).text
    assert "This record has no memory over time." in text
    assert "This record has no steps." in text
    assert "Critical path:" not in text


def test_equal_runs_have_equal_pages_which_are_written_beside_the_run(run: RunRecord, tmp_path: Path) -> None:
    path = write_report(run, tmp_path / "plan")
    assert path == tmp_path / "plan" / "report.html"
    assert path.read_text(encoding="utf-8") == render_report(copy.deepcopy(run))


@pytest.mark.parametrize("part", ["history", "stages", "planners", "transfers", "warnings"])
def test_an_empty_part_leaves_the_rest_whole(run: RunRecord, part: str) -> None:
    run[part] = []  # type: ignore[literal-required]
    if part == "transfers":
        run["critical_path"] = [("op", 0)]
    assert "one step takes 6.00 ms" in Page(render_report(run)).text


def test_an_empty_graph_has_a_report() -> None:
    text = Page(render_report(empty_run())).text
    assert "takes 6.00 ms (simulated) instead of 9.00 ms, on 0 of 2 devices" in text

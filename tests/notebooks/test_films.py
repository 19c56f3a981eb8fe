"""The animations of searches: placements, odds and seconds of simulated moves, and the differences of executed steps."""

import numpy as np
import plotly.graph_objects as go
import pytest

from gnnplace.difference import Difference
from gnnplace.planners.solution import Change, ExecutedStep
from gnnplace.report.theme import MUTED, TRANSFER, device_colour
from notebooks.films import RolloutStep, executed_film, rollout_chart

EDGES = [(0, 1), (0, 2)]
NAMES = ["stem", "left", "<right>"]
DEVICES = ["gpu:0", "gpu:1"]


@pytest.fixture
def film() -> go.Figure:
    """Two kept steps: `left` goes to the second GPU, then it returns while the others go there."""
    chances = np.zeros((3, 2))
    chances[:, 1] = [0.1, 0.7, 0.2]
    later = np.array([[0.0, 0.5], [0.25, 0.0], [0.0, 0.25]])
    steps = [
        RolloutStep(np.array([0, 0, 0]), chances, np.array([0, 1, 0]), 0.010, 0.006, 4),
        RolloutStep(np.array([0, 1, 0]), later, np.array([1, 0, 1]), 0.006, 0.005, 9),
    ]
    return rollout_chart(steps, [0, 1], EDGES, NAMES, DEVICES)


def parts(frame: go.Frame) -> dict[str, go.Scatter | go.Bar]:
    return dict(zip(("sent", "nodes", "rings", "bars", "seconds", "last"), frame.data, strict=True))


def test_nodes_have_the_colour_of_their_device_and_grow_with_their_chance(film: go.Figure) -> None:
    first, second = (parts(frame)["nodes"].marker for frame in film.frames)
    assert list(first.color) == [device_colour(0)] * 3
    assert list(second.color) == [device_colour(device) for device in (0, 1, 0)]
    assert np.argsort(first.size).tolist() == [0, 2, 1]
    assert first.size[1] == np.max(first.size) == np.max(second.size)


def test_only_tensors_between_devices_have_the_colour_of_transfers(film: go.Figure) -> None:
    first, second = (parts(frame)["sent"] for frame in film.frames)
    assert (len(first.x), len(second.x)) == (0, 3)  # two ends and a gap
    assert second.line.color == TRANSFER
    assert film.data[0].line.color == MUTED
    assert np.isnan(film.data[0].x).sum() == len(EDGES)


def test_moved_groups_have_rings_in_the_colour_of_their_device_and_framed_bars(film: go.Figure) -> None:
    first, second = map(parts, film.frames)
    assert (first["rings"].marker.color, first["rings"].x[0]) == ((device_colour(1),), film.frames[0].data[1].x[1])
    assert second["rings"].marker.color == tuple(device_colour(device) for device in (1, 0, 1))
    assert [bar.text[0] for bar in (first["bars"], second["bars"])] == ["left → gpu:1", "stem → gpu:1"]
    assert [round(float(chance)) for chance in first["bars"].x] == [70, 20, 10, 0, 0, 0]
    assert list(first["bars"].marker.line.width) == [2.5, 0, 0, 0, 0, 0]
    assert second["bars"].text[2] == "&lt;right&gt; → gpu:1"
    assert list(second["bars"].marker.line.width) == [2.5, 2.5, 2.5, 0, 0, 0]


def test_seconds_change_at_the_evaluations_of_kept_steps(film: go.Figure) -> None:
    first, second = map(parts, film.frames)
    assert (list(first["seconds"].x), list(first["seconds"].y)) == ([0, 4], pytest.approx([10.0, 6.0]))
    assert (list(second["seconds"].x), list(second["seconds"].y)) == ([0, 4, 9], pytest.approx([10.0, 6.0, 5.0]))
    assert (second["last"].x[0], second["last"].y[0]) == (9, pytest.approx(5.0))
    assert [frame.layout.title.text for frame in film.frames] == [
        "evaluation 4: left moves to gpu:1: 10.0 → 6.0 ms",
        "evaluation 9: 3 groups move to gpu:1, gpu:0: 6.0 → 5.0 ms",
    ]


def test_a_slider_and_a_button_reach_every_frame_by_its_name(film: go.Figure) -> None:
    (slider,) = film.layout.sliders
    assert [step.args[0][0] for step in slider.steps] == [frame.name for frame in film.frames] == ["0", "1"]
    assert [button.label for button in film.layout.updatemenus[0].buttons] == ["play", "pause"]
    assert list(film.frames[0].traces) == list(range(len(film.data) - 6, len(film.data)))


@pytest.fixture
def executed() -> go.Figure:
    """Three executed steps from one device: two groups move and stay, one fails, one is no faster."""

    def step(
        units: list[int], targets: list[int], sources: list[int], found: Difference | None, is_kept: bool
    ) -> ExecutedStep:
        return ExecutedStep(3, "policy", Change(*map(np.array, (units, sources, targets))), found, is_kept)

    steps = [
        step([1, 2], [1, 1], [0, 0], Difference(-0.2, -0.25, -0.15, 40), True),
        step([0], [1], [0], None, False),
        step([2], [0], [1], Difference(0.9, 0.8, 1.0, 40), False),
    ]
    return executed_film(steps, np.array([0, 1, 1]), EDGES, NAMES, DEVICES, np.array([1.0, 4.0, 0.0]))


def test_an_executed_step_begins_where_kept_steps_have_led_and_rings_all_groups_that_it_moves(
    executed: go.Figure,
) -> None:
    colours = [list(frame.data[1].marker.color) for frame in executed.frames]
    assert colours == [[device_colour(device) for device in devices] for devices in ((0, 0, 0), (0, 1, 1), (0, 1, 1))]
    rings = [list(frame.data[2].marker.color) for frame in executed.frames]
    assert rings == [[device_colour(1)] * 2, [device_colour(1)], [device_colour(0)]]
    assert executed.frames[0].data[1].marker.size.tolist() == [16.5, 26.0, 7.0]


def test_differences_have_intervals_and_the_current_placement_changes_with_kept_steps_alone(
    executed: go.Figure,
) -> None:
    _, _, _, kept, taken_back, current = executed.frames[2].data
    assert (list(kept.x), list(kept.y), list(taken_back.x)) == ([1], [-20.0], [3])
    assert (kept.error_y.array[0], kept.error_y.arrayminus[0]) == pytest.approx((5.0, 5.0))
    assert list(taken_back.y) == [30.0]  # clipped to the axis
    assert list(current.y) == pytest.approx([100.0, 80.0, 80.0, 80.0])
    assert [frame.layout.title.text for frame in executed.frames] == [
        "step 1, from the policy: 2 op groups moved: -20.0 % (-25.0 to -15.0 %), kept",
        "step 2, from the policy: 1 op group moved, failed to run",
        "step 3, from the policy: 1 op group moved: +90.0 % (+80.0 to +100.0 %), taken back",
    ]

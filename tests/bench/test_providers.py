"""The bench of two libraries on the same cores: its models, its figures of plain sessions, and its summary."""

from typing import Any

import pytest

from gnnplace.bench import providers
from gnnplace.bench.harness import BenchOptions
from gnnplace.bench.providers import Providers, bench_providers, providers_summary
from gnnplace.devices.real_names import parse_real, split_names


def row(difference: float | None, high: float | None, libraries: dict[str, int]) -> dict[str, Any]:
    low = None if high is None else high - 0.1
    return {
        "cpu_s": 2.0, "other_s": 1.0, "placed_s": 1.0, "parts": 3, "difference": difference, "low": low, "high": high,
        "ops_by_library": libraries,
    }  # fmt: skip


def test_every_model_of_the_bench_has_batch_1_and_occurs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Providers]()

    def run_cases(cases: list[Providers], *_: object) -> dict[Providers, dict[str, Any]]:
        seen.extend(cases)
        return {case: row(None, None, {"CPU": 4}) for case in cases}

    monkeypatch.setattr(providers, "run_cases", run_cases)
    found = bench_providers(BenchOptions(evaluations=7))
    assert len(found.rows) == len({case.model.split(":")[0] for case in seen}) == 13
    assert {case.evaluations for case in seen} == {7}
    assert not any("batch=" in case.model and "batch=1" not in case.model.split(":") for case in seen)


def test_the_fastest_plain_session_of_each_library_is_found() -> None:
    sessions = {"cpu:0": 3.0, "cpu:0-1[spinning=1]": 2.0, "ep:OpenVINO:CPU[cores=0]": 4.0}
    assert providers._least(sessions, is_other=False) == 2.0
    assert providers._least(sessions, is_other=True) == 4.0
    assert providers._least({"cpu:0": 3.0}, is_other=True) is None


def test_the_summary_counts_placements_that_are_faster_beyond_the_interval() -> None:
    mixed = {"CPU": 2, "OpenVINO": 2}
    rows = [
        row(-0.2, -0.15, mixed), row(-0.05, 0.01, mixed), row(-0.1, -0.02, {"OpenVINO": 4}), row(0.2, 0.25, mixed),
        row(None, None, {"CPU": 4}),
    ]  # fmt: skip
    found = providers_summary(rows)
    assert (found["models"], found["openvino_is_the_faster_library"]) == (5, 5)
    assert (found["faster_than_both_libraries"], found["of_these_by_mixing_both"]) == (2, 1)
    assert found["greatest_speed_up"] == pytest.approx(1.25)
    assert found["slower_beyond_the_interval_before_falling_back"] == 1


def test_both_libraries_have_each_core_and_both_together() -> None:
    cores = [(parse_real(name).family, parse_real(name).cores) for name in split_names(providers.DEVICES)]
    assert sorted(cores) == [(family, one) for family in ("cpu", "ep") for one in ((0,), (0, 1), (1,))]
    assert set(providers.DEVICES_OF_BOTH_CORES) <= set(split_names(providers.DEVICES))

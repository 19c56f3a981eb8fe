"""What the notebooks say: which of their results stands where in their text, and how near it has to be."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

__all__ = ["CLAIMS", "EXPECTED", "Claim"]

SEARCHED = 0.06
"""Searches draw by floats that differ from processor to processor in their last digits, and then go other ways."""


@dataclass(frozen=True)
class Claim:
    """A number in the text: the phrase has {} in its place. Its last digit may be rounded, and it may be off by `relative`."""

    key: str
    phrase: str
    number: str
    relative: float = 0.0

    @property
    def value(self) -> object:
        """What the result has to equal."""
        digits = len(self.number.partition(".")[2])
        return pytest.approx(float(self.number), abs=max(0.51 * 10**-digits, self.relative * float(self.number)))


CLAIMS: dict[str, tuple[Claim, ...]] = {
    "01_onnx_to_dgl": (
        Claim("ops", "SqueezeNet's {} ops", "66"),
        Claim("groups", "ops became {} groups", "24"),
        Claim("edges", "24 nodes and {} edges", "29"),
        Claim("node_features", "{} numbers on each node and 2", "12"),
        Claim("edge_features", "on each node and {} on each edge", "2"),
        Claim("weights", "has {} weights", "20848"),
    ),
    "02_devices_costs_simulator": (
        Claim("one_gpu_ms", "{} ms on one GPU", "191"),
        Claim("halves_ms", "{} ms cut in half", "197"),
        Claim("dealt_out_ms", "{} ms dealt out", "525"),
        Claim("gnn_ms", "{} ms searched for", "157", SEARCHED),
        Claim("bound_ms", "less than {} ms", "127"),
    ),
    "03_revisit": (
        Claim("ops", "{} ops are joined", "718"),
        Claim("groups", "into {} groups", "96"),
        Claim("one_gpu_ms", "One GPU: {} ms", "141"),
        Claim("after_50_moves_ms", "the first 50 of them to about {} ms", "90", 0.15),
        Claim("policy_ms", "300 moves of the policy: {} ms", "76", 0.1),
        Claim("blind_ms", "300 blind ones: {} ms", "86", 0.1),
        Claim("gnn_ms", "with 1,000 evaluations: {} ms", "76", SEARCHED),
        Claim("bound_ms", "less than {} ms", "49"),
    ),
    "04_training_generalisation": (
        Claim("cases", "on {} cases", "62"),
        Claim("gnn_1000", "1,000 evaluations: `gnn` {}", "1.055"),
        Claim("fresh_1000", "fresh weights {},", "1.065"),
        Claim("annealing_1000", "annealing {}; with", "1.124"),
        Claim("gnn_5000", "with 5,000: `gnn` {}", "1.030"),
        Claim("annealing_5000", "annealing {}. Training", "1.093"),
        Claim("training_percent", "Training is worth {} %", "0.7"),
        Claim("messages_percent", "message passing {} %. All", "0.2"),
    ),
    "05_real_execution": (
        Claim("models", "Over {} models", "13"),
        Claim("median_error_percent", "the median error is {} %, at most", "3.9"),
        Claim("models_within_10_percent", "at most 10 % on {} of them", "10"),
        Claim("worst_error_percent", "at worst {} %", "18"),
        Claim("best_speed_up", "gain over one is up to {},", "1.76"),
        Claim("best_over_two_threads", "over two threads up to {}.", "1.02"),
    ),
    "06_papers_tables": (
        Claim("rows", "{} rows: `gnn`", "15"),
        Claim("gnn_first", "`gnn` is first in {},", "15"),
        Claim("scotch_loses", "Scotch loses to the expert in {}", "14"),
        Claim("mincut_loses", "MinCut in {}", "11"),
        Claim("learners_beat_all", "learners beat all baselines in {}.", "3"),
        Claim("spotlight_to_policy_gradient", "policy gradient: {} here", "0.99"),
        Claim("spotlight_published", "{} published", "0.61"),
        Claim("longer_ms", "two K40s at {} ms", "558"),
    ),
    "07_your_own": (
        Claim("ops", "{} ops; on the devices", "50"),
        Claim("to_best_single", "the placement takes {} of", "0.51", SEARCHED),
    ),
}

EXPECTED: dict[str, dict[str, object]] = {
    "01_onnx_to_dgl": {
        "speed_up": pytest.approx(10.0),
        "feature_difference": pytest.approx(0.0, abs=1e-6),
    },
    "02_devices_costs_simulator": {"one_gpu_fits_320_mib": False, "found_fits_320_mib": True, "violations": 0},
    "03_revisit": {"chances_add_up_to": pytest.approx(1.0)},
    "04_training_generalisation": {
        "updates": 2,
        "stored_updates": 600,
        "gnn_to_single": pytest.approx(0.52, rel=SEARCHED),
        "gnn_to_fresh": pytest.approx(1.0, abs=SEARCHED),
    },
    "05_real_execution": {
        "relative_difference": pytest.approx(0.0, abs=1e-5),
        # On whatever machine, however busy: seconds of the right size.
        "largest_predicted_to_executed": pytest.approx(1.0, abs=0.95),
        "least_predicted_to_executed": pytest.approx(1.0, abs=0.95),
    },
    "06_papers_tables": {"published_nmt_2_speed_up": pytest.approx(2.13 / 0.84)},
    "07_your_own": {"relative_difference": pytest.approx(0.0, abs=1e-5)},
}
"""Results that no sentence gives as a number."""

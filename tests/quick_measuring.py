"""Few repeats of every measurement, for tests of what happens with its seconds."""

from collections.abc import Callable
from functools import partial
from typing import Any

from gnnplace.api import measuring
from gnnplace.measuring import busy, link_probe, profile
from gnnplace.measuring.paired import PairRule
from gnnplace.measuring.timing import MeasureOptions, StoppingRule

QUICK_PAIRS = PairRule(max_blocks=10)
"""Few pairs, which still have an interval."""


def measure_quickly(rule: StoppingRule, set_attribute: Callable[[Any, str, Any], None] = setattr) -> None:
    """Profiles, probes and executes with this rule, even while other programs keep the devices busy.

    Chains and tensors of probes are short, and one random placement profiles the segments of a new model.
    """
    links = partial(link_probe.probe_links, rule=rule)
    for module, name, value in (
        (measuring, "MEASURE_OPTIONS", MeasureOptions(search=rule, final=rule, plain=rule, decisive=QUICK_PAIRS)),
        (measuring, "_PATIENT", rule),
        (measuring, "_SHARES_OF_GROUPS", (1.0,)),
        (link_probe, "FLOATS", (1, 1 << 16)),
        (link_probe, "_LONG", 8),
        (measuring, "measured_costs", partial(profile.measured_costs, rule=rule)),
        (measuring, "probe_links", links),
        (profile, "probe_links", links),
        (profile, "dispatch_overhead_s", partial(link_probe.dispatch_overhead_s, rule=rule)),
        (busy, "busy_shares", lambda devices: dict.fromkeys(devices, 0.0)),
    ):
        set_attribute(module, name, value)

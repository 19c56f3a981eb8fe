"""Cases on several servers: wide graphs, on sets that training does not draw."""

from itertools import pairwise

import numpy as np
import pytest

from gnnplace.bench.generalization.cases import DEVELOPMENT
from gnnplace.bench.generalization.devices import held_out_devices, unlike_training
from gnnplace.bench.generalization.sealed import SEALED
from gnnplace.bench.generalization.servers import SERVER_GRAPHS, SERVERS
from models_zoo.networks.generated.sampling import SAMPLED_FAMILIES


def test_the_sets_of_cases_have_no_name_in_common_and_families_are_named_as_in_training() -> None:
    names = [name for among in (DEVELOPMENT, SERVERS, SEALED) for name in among.cases]
    assert len(names) == len(set(names))
    assert len(SERVERS.cases) == 28
    assert {SERVERS.family(case.graph) for case in SERVERS.cases.values()} - set(SERVERS.drawn) == {"workflow"}
    assert set(SERVERS.drawn) == set(SAMPLED_FAMILIES)


@pytest.mark.parametrize("name", SERVER_GRAPHS)
def test_graphs_are_wide(name: str) -> None:
    graph = SERVERS.graph(name)
    assert 300 <= graph.num_ops <= 500
    longest_path = graph.upward_rank(np.ones(graph.num_ops)).max()
    assert graph.num_ops / longest_path > 8


@pytest.mark.parametrize("name", dict.fromkeys(case.devices for case in SERVERS.cases.values()))
def test_devices_are_of_several_servers_and_training_cannot_draw_them(name: str) -> None:
    topology = held_out_devices(name)
    assert sum(device.is_host for device in topology.devices) > 1
    assert unlike_training(topology) != ()
    assert all(topology.route(one, other) is not None for one, other in pairwise(range(topology.num_devices)))

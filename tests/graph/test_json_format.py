"""Files of op graphs."""

import json
from pathlib import Path

from gnnplace.graph.json_format import FORMAT, read_noted_graph, write_graph


def test_keys_that_look_like_misspelt_ones_are_named(tmp_path: Path) -> None:
    document = {
        "format": FORMAT, "name": "g", "ops": [{"name": "a", "times_s": {"x": 1.0}, "colour": "red"}],
        "tensors": [{"producer": "a", "bytes": 1, "consumer": ["a"]}], "shared_weight": [], "author": "me",
    }  # fmt: skip
    (tmp_path / "g.json").write_text(json.dumps(document))
    graph, notes = read_noted_graph(tmp_path / "g.json")
    assert graph.num_ops == 1
    assert notes == (
        "the key 'shared_weight' of the graph is unknown and has no effect; did you mean 'shared_weights'?",
        "the key 'times_s' of ops is unknown and has no effect; did you mean 'time_s'?",
        "the key 'consumer' of tensors is unknown and has no effect; did you mean 'consumers'?",
    )
    write_graph(graph, tmp_path / "again.json")
    assert read_noted_graph(tmp_path / "again.json")[1] == ()

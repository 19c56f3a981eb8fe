"""A program that partitions with Mt-KaHyPar: a JSON object a line on standard input, the parts of its vertices on output.

Its first line answers a question of its own, and so says that the library works. A process of its own, as release 1.7 now
and then crashes or hangs on inputs whose vertices hardly fit into the parts.
"""

from __future__ import annotations

import itertools
import json
import sys

__all__ = ["main"]


_FOUR_VERTICES = {"vertex_weights": [1, 1, 1, 1], "limits": [3, 3], "nets": [[0, 1], [1, 2], [2, 3]], "net_weights": [1, 1, 1]}  # fmt: skip


def main() -> None:
    """Objective km1, deterministic preset, one thread."""
    import mtkahypar

    threads = mtkahypar.initialize(1, False)
    for asked in itertools.chain([_FOUR_VERTICES], map(json.loads, sys.stdin)):
        context = threads.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
        context.logging = False
        context.set_partitioning_parameters(len(asked["limits"]), 0.0, mtkahypar.Objective.KM1)
        vertices, nets = asked["vertex_weights"], asked["nets"]
        hypergraph = threads.create_hypergraph(context, len(vertices), len(nets), nets, vertices, asked["net_weights"])
        context.set_individual_target_block_weights(asked["limits"])
        print(json.dumps(hypergraph.partition(context).get_partition()), flush=True)


if __name__ == "__main__":
    main()

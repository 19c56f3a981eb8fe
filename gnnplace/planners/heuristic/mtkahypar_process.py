"""A program that partitions with Mt-KaHyPar: a JSON object a line on standard input, the parts of its vertices on output.

A process of its own, as release 1.7 now and then crashes or hangs on inputs whose vertices hardly fit into the parts.
"""

from __future__ import annotations

import json
import sys

__all__ = ["main"]


def main() -> None:
    """Objective km1, deterministic preset, one thread."""
    import mtkahypar

    threads = mtkahypar.initialize(1, False)
    for line in sys.stdin:
        asked = json.loads(line)
        context = threads.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
        context.logging = False
        context.set_partitioning_parameters(len(asked["limits"]), 0.0, mtkahypar.Objective.KM1)
        vertices, nets = asked["vertex_weights"], asked["nets"]
        hypergraph = threads.create_hypergraph(context, len(vertices), len(nets), nets, vertices, asked["net_weights"])
        context.set_individual_target_block_weights(asked["limits"])
        print(json.dumps(hypergraph.partition(context).get_partition()), flush=True)


if __name__ == "__main__":
    main()

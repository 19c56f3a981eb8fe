"""One published method per file, readable next to its paper.

In reading order:

- `baselines.py`: one device, devices in turn, and single moves until none helps;
- `expert.py`: whole layers in order, with equal loads;
- `partition_graph.py`: the input of graph partitioners;
- `metis.py`: MinCut, over the accelerators or with the hosts;
- `scotch.py`: Scotch, onto devices with speeds and distances;
- `mtkahypar.py`: hypergraph partitions that fit into the memories;
- `mtkahypar_process.py`: the library, in an isolated process;
- `intervals.py`: busy intervals of devices and channels, with insertion;
- `list_state.py`: the compiled state of list schedulers;
- `list_schedule.py`: list scheduling with insertion, transfers and memory;
- `heft.py`: HEFT;
- `peft.py`: PEFT;
- `heft_portfolio.py`: many list schedules under varied transfer costs;
- `neighbourhoods.py`: list schedules on devices that are near each other;
- `channel_queues.py`: what queues at the channels cost;
- `estimates.py`: schedules by their own seconds and peak memory;
- `packed.py`: list schedules that pack memory first;
- `repair.py`, `repair_moves.py`: moves that make a placement fit;
- `capacity_cuts.py`: cuts annealed under the memory limits;
- `etf_state.py`, `etf.py`: m-ETF, earliest task first with transfers and memory;
- `sct.py`: m-SCT, with favourite children from a linear program;
- `segments.py`: dynamic programming over cuts of topological orders;
- `constructions.py`: starts of searches;
- `annealing.py`: simulated annealing;
- `genetic.py`: a biased random-key genetic algorithm;
- `optimal/`: CP-SAT on the execution model as constraints, with a proof or a bound.
"""

__all__: list[str] = []

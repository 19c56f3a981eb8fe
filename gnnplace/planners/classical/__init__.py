"""One published method per file, readable next to its paper.

In reading order:

- `single.py`: the best single device;
- `seen.py`: assignments that were evaluated already;
- `round_robin.py`: devices in turn;
- `expert.py`: whole layers in order, as people do;
- `partition_graph.py`: what graph partitioners cut;
- `scotch.py`: Scotch, onto devices with speeds and distances;
- `metis.py`: MinCut, over the accelerators;
- `metis_cpu.py`: the same with hosts;
- `mtkahypar.py`: hypergraph partitions that fit into memories;
- `mtkahypar_process.py`: the library, in an isolated process;
- `list_state.py`: what list schedulers decide on, compiled;
- `list_schedule.py`: list scheduling with insertion, transfers and memory, compiled;
- `heft.py`: HEFT;
- `peft.py`: PEFT;
- `heft_portfolio.py`: many list schedules under varied transfer costs;
- `earliest_task.py`: earliest task first with transfers and memory, compiled;
- `etf.py`: m-ETF;
- `sct.py`: m-SCT, with favourite children from a linear program;
- `starts.py`: the better of `single` and `heft`, from which local searches begin;
- `segments.py`: dynamic programming over cuts of topological orders;
- `greedy.py`: one-step lookahead;
- `annealing.py`: simulated annealing;
- `refinement.py`: clusters that move at the boundaries of a placement, on all cores;
- `genetic.py`: a biased random-key genetic algorithm;
- `optimal/`: CP-SAT on the execution model as constraints, with a proof or a bound.
"""

__all__: list[str] = []

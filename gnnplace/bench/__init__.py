"""One harness (case, run, row, page) and the comparisons that the README's figures come from.

In reading order: `harness.py` (options, cases that are stored as they finish, results), `suites.py` (the suites by name),
`problems.py` (problems and searches as benches time them).

Simulated: `engine.py` (speed of the simulator), `planners.py` (planners on the light models), `papers/` (the papers' tables),
`generalization/` (graphs and devices that no training has seen), `ladder/` (what learning adds), `records/` (the best known placements),
`cores.py` (many cores), `scale.py` (1,000 to 200,000 ops).

Executed: `execution.py` (placed models against plain sessions), `measured.py` with `rivals.py` (searches by execution), `pairs.py`
(paired measurements of known differences), `training.py` (policies that learn from executed runtime), `fidelity.py` with
`fidelity_probes.py` and `residual.py` (simulated against measured seconds, and corrections), `core_sets.py` (sets of cores),
`scaling.py` (kernels with one thread and with two), `providers.py` (OpenVINO beside ONNX Runtime's kernels), `gpu.py` (GPUs),
`zoo.py` (every recipe of the zoo), `report.py` (reports in a browser).
"""

__all__: list[str] = []

"""A small run record with an entry for every part of a report."""

from gnnplace.run_record import RunRecord


def example_run() -> RunRecord:
    """Three ops on two devices: conv (2 ms) on gpu, sent (1 ms) to cpu, add (3 ms) there; relu (1 ms) stays."""
    return {
        "format": "gnnplace.run/1",
        "summary": {
            "model": "tiny", "ops": 3, "groups": 3, "planner": "gnn", "objective": "latency", "makespan_s": 0.006,
            "measured": None, "feasible": True, "lower_bound_s": 0.005, "gap": 0.2,
            "compared": {"single": 0.009, "heft": 0.007, "gnn": 0.006}, "evaluations": 40, "wall_s": 1.5, "seed": 0,
            "out": "plan",
        },
        "devices": [
            {"name": "gpu:0", "kind": "k40", "memory_bytes": 4096},
            {"name": "cpu:0", "kind": "cpu:0", "memory_bytes": None},
        ],
        "ops": {
            "name": ["conv", "relu", "add"], "type": ["Conv", "Relu", "Add"], "device": [0, 0, 1],
            "group": [0, 0, 1], "start_s": [0.0, 0.002, 0.003], "end_s": [0.002, 0.003, 0.006],
            "memory_bytes": [1024, 0, 512],
            "shapes": ["float32[1,3] -> float32[1,8]", "float32[1,8] -> float32[1,8]", ""],
            "cost_s": [[0.002, 0.008], [0.001, 0.002], [0.003, 0.003]],
            "held": ["Only gpu:0 can run it.", "", ""],
        },
        "edges": [(0, 1, 256), (0, 2, 256)],
        "transfers": [
            {"tensor": "conv", "source": 0, "target": 1, "start_s": 0.002, "end_s": 0.003, "bytes": 256, "channel": "pcie"}
        ],
        "critical_path": [("op", 0), ("transfer", 0), ("op", 2)],
        "memory_over_time": [[(0.0, 2048), (0.003, 1024)], [(0.0, 512), (0.002, 768)]],
        "peak_memory_bytes": {"gpu:0": 2048, "cpu:0": 768},
        "planners": [
            {"planner": "single", "makespan_s": 0.009, "gap": 0.8, "evaluations": 2, "wall_s": 0.01, "feasible": True, "error": None},
            {"planner": "gnn", "makespan_s": 0.006, "gap": 0.2, "evaluations": 40, "wall_s": 1.5, "feasible": True, "error": None},
            {"planner": "metis", "makespan_s": None, "gap": None, "evaluations": 0, "wall_s": 0.0, "feasible": False, "error": "pymetis is missing"},
        ],
        "history": [(1, 0.1, 0.009), (7, 0.4, 0.007), (30, 1.2, 0.006)],
        "stages": [("heft", 0.007), ("sweep 1", 0.006)],
        "steps": [
            {
                "evaluations": 30, "kind": "one unit", "before_s": 0.007, "after_s": 0.006, "moved": 1, "moves": [("add", 0, 1)],
                "probability": 0.25, "chance": 0.125,
            },
        ],
        "lower_bound": {"value_s": 0.005, "name": "critical path"},
        "measured": None,
        "warnings": ["dimension 'batch' is not given; 1 is taken"],
        "command": "gnnplace place tiny.onnx --devices k40x1",
        "versions": {"gnnplace": "0.1.0", "onnx": "1.23.2"},
    }  # fmt: skip


def chain_run(count: int, group_size: int) -> RunRecord:
    """A chain of `count` ops of 1 ms, without pauses, the first half on one device and the second half on the other."""
    run = example_run()
    run["ops"] = {
        "name": [f"op{op}" for op in range(count)], "type": ["Add"] * count,
        "device": [2 * op // count for op in range(count)], "group": [op // group_size for op in range(count)],
        "start_s": [op * 1e-3 for op in range(count)], "end_s": [(op + 1) * 1e-3 for op in range(count)],
        "memory_bytes": [0] * count,
    }  # fmt: skip
    run["edges"] = [(op, op + 1, 4) for op in range(count - 1)]
    run["transfers"], run["critical_path"] = [], [("op", op) for op in range(count)]
    return run


def empty_run() -> RunRecord:
    """A run without ops."""
    run = example_run()
    for column in run["ops"].values():
        column.clear()  # type: ignore[attr-defined]
    run["edges"], run["transfers"], run["critical_path"], run["summary"]["ops"] = [], [], [], 0
    return run


def older_run() -> RunRecord:
    """A record without the parts that first versions did not write."""
    run = example_run()
    for key in ("critical_path", "memory_over_time", "steps"):
        del run[key]  # type: ignore[misc]
    for column in ("shapes", "cost_s", "held"):
        del run["ops"][column]  # type: ignore[misc]
    return run

"""Examples in the help of each command: lines that users can type unchanged, each with a comment."""

from collections.abc import Mapping, Sequence

from rich.markup import escape

EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "gnnplace": (
        ("gnnplace doctor", "check the installation"),
        ("gnnplace place model.onnx --devices cpu:0,cpu:1 --measure --out placed", "place a model by running it"),
        ("gnnplace run placed", "run it"),
    ),
    "place": (
        ("gnnplace place model.onnx --devices k40x4", "simulated on four GPUs and their host"),
        ("gnnplace place model.onnx --devices cpu:0,cpu:1 --measure --out placed", "executed on two cores"),
        ("gnnplace place zoo:nmt_2 --devices k40x2 --planner annealing --seconds 10", "another planner, ten seconds"),
        ("gnnplace place model.onnx --devices auto --dim batch=1:64", "good at every size from 1 to 64"),
        ("gnnplace place model.onnx --devices host1/cpu:0,host2/cuda:0 --ray auto --out placed", "on two hosts of a cluster"),
    ),
    "evaluate": (
        ("gnnplace evaluate model.onnx --devices k40x4 --placement placed/placement.json", "simulated seconds"),
        ("gnnplace evaluate model.onnx --devices cpu:0,cpu:1 --placement mine.json --measure", "executed"),
        ("gnnplace evaluate model.onnx --devices cpu:0,cpu:1 --placement a.json --measure --against b.json", "which is faster"),
    ),
    "compare": (
        ("gnnplace compare zoo:nmt_2 --devices k40x2 --planners single,heft,annealing,gnn", "2,000 evaluations each"),
        ("gnnplace compare model.onnx --devices a100x2 --planners annealing,gnn --seconds 10", "ten seconds each"),
        ("gnnplace compare zoo:nmt_2 --devices k40x2 --planners annealing,gnn --ray 10.0.0.1:6379", "on the hosts of a cluster"),
    ),
    "run": (
        ("gnnplace run placed", "with random inputs"),
        ("gnnplace run placed --input x.npz --output y.npz", "arrays by the names of inputs and outputs"),
        ("gnnplace run placed --repeat 100", "seconds of single and of pipelined requests"),
        ("gnnplace run placed --ray 10.0.0.1:6379", "on the hosts of a cluster"),
    ),
    "profile": (("gnnplace profile model.onnx --devices cpu:0,cpu:1 --out costs.json", "both cores and their link"),),
    "devices": (
        ("gnnplace devices", "this machine's devices, and the presets"),
        ("gnnplace devices k40x2+v100", "the devices of a set"),
        ("gnnplace devices k40x4 --json > four.json", "a file to edit, for --devices four.json"),
        ("gnnplace devices --ray auto", "the devices of all hosts of a cluster"),
    ),
    "planners": (("gnnplace planners", "names for --planner"),),
    "records": (
        ("gnnplace records", "the best known placements, with their gaps to lower bounds"),
        ("gnnplace place record:layered_200-k40x4 --seconds 10", "searches for a better one"),
    ),
    "report": (
        ("gnnplace report placed", "draws placed/report.html again"),
        ("gnnplace report placed --trace trace.json --pictures figures", "the schedule for Perfetto, pictures for papers"),
        ("gnnplace report notebooks/results/bench-seeds.json", "the tables of a bench"),
    ),
    "train": (
        ("gnnplace train --out policy.safetensors --updates 200", "a policy like the shipped one, trained for less time"),
        ("gnnplace train --out policy.safetensors --resume --minutes 10", "continues for ten minutes"),
        ("gnnplace train --measure model.onnx --devices cpu:0,cpu:1 --out run", "on one model, by executing it"),
        ("gnnplace train --out policy.safetensors --ray 10.0.0.1:6379", "a process per core of a cluster"),
    ),
    "bench": (
        ("gnnplace bench engine", "nanoseconds per op of the simulator"),
        ("gnnplace bench seeds --only 2018-rnnlm --seeds 1 --out seeds.json", "one row of the papers' tables"),
        ("gnnplace bench records --only layered_200-k40x4 --extend placement.json", "keeps a better placement as the record"),
    ),
    "zoo": (
        ("gnnplace zoo", "list all"),
        ("gnnplace zoo rnnlm_2 --training", "describes a recipe"),
        ("gnnplace zoo rnnlm_2 --training --set layers=4 --out rnnlm.onnx", "builds it with other settings"),
    ),
    "doctor": (
        ("gnnplace doctor", "installed parts, missing parts, how to install them"),
        ("gnnplace doctor --json", "for programs; exit code 1 if a required part is broken"),
    ),
}  # fmt: skip


def examples_of(command: str) -> str:
    """The examples of a command as the end of its help."""
    lines = [f"[dim]# {escape(what)}[/dim]\n[cyan]{escape(line)}[/cyan]" for line, what in EXAMPLES[command]]
    return "\n".join(["[bold]Examples[/bold]", *lines])

"""The pictures of a report as Plotly figures, and where the graph's groups are; the page itself draws the schedule and the graph.

In reading order:

- `theme.py`: colours that work on light and dark ground, inert labels;
- `memory.py`: what is in each memory over time;
- `progress.py`: how the best placement improved;
- `layered_layout.py`: where the nodes of a graph are drawn;
- `graph.py`: the op groups at their places;
- `placements.py`: devices per layer, of several planners;
- `ratios.py`: how far rows of a bench are from the best known;
- `agreement.py`: simulated against executed seconds;
- `bars.py`, `curves.py`, `matrix.py`: amounts side by side, along an axis, and of many things at once;
- `structure.py`, `gantt.py`: a graph and a schedule as still pictures;
- `rollout.py`: a search by the policy, as an animation.
"""

from gnnplace.report.charts.agreement import agreement_chart
from gnnplace.report.charts.bars import bars_chart
from gnnplace.report.charts.curves import curves_chart
from gnnplace.report.charts.gantt import gantt_chart
from gnnplace.report.charts.graph import graph_picture
from gnnplace.report.charts.matrix import matrix_chart
from gnnplace.report.charts.memory import memory_chart
from gnnplace.report.charts.placements import placements_chart
from gnnplace.report.charts.progress import progress_chart
from gnnplace.report.charts.ratios import budgets_chart, ratios_chart
from gnnplace.report.charts.rollout import rollout_chart
from gnnplace.report.charts.structure import structure_chart

__all__ = [
    "agreement_chart",
    "bars_chart",
    "budgets_chart",
    "curves_chart",
    "gantt_chart",
    "graph_picture",
    "matrix_chart",
    "memory_chart",
    "placements_chart",
    "progress_chart",
    "ratios_chart",
    "rollout_chart",
    "structure_chart",
]

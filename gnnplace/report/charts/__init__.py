"""The pictures of a report as Plotly figures, and where the graph's groups are; the page itself draws the schedule and the graph.

In reading order:

- `theme.py`: colours that work on light and dark ground, inert labels;
- `memory.py`: what is in each memory over time;
- `progress.py`: how the best placement improved;
- `layered_layout.py`: where the nodes of a graph are drawn;
- `graph.py`: the op groups at their places;
- `placements.py`: devices per layer, of several planners;
- `ratios.py`: how far rows of a bench are from the best known;
- `agreement.py`: simulated against executed seconds.
"""

from gnnplace.report.charts.agreement import agreement_chart
from gnnplace.report.charts.graph import graph_picture
from gnnplace.report.charts.memory import memory_chart
from gnnplace.report.charts.placements import placements_chart
from gnnplace.report.charts.progress import progress_chart
from gnnplace.report.charts.ratios import budgets_chart, ratios_chart

__all__ = [
    "agreement_chart",
    "budgets_chart",
    "graph_picture",
    "memory_chart",
    "placements_chart",
    "progress_chart",
    "ratios_chart",
]

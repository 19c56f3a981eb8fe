"""The list of the records for readers, `models_zoo/records/README.md`."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from gnnplace.files import write_text
from gnnplace.units import format_s
from models_zoo.records.names import FOLDER, record_names
from models_zoo.records.record import OPTIMAL, Record, load_record

_HEAD = """# Records

The best placements known of {count} graphs on device sets, in the simulator, with lower bounds of the seconds of all placements.
The gap is what is left between the two: in {optimal} cases it is below 0.1 %, the median is {median:.1%}.

Compare with a record, or search for a better one:

```python
import gnnplace

problem = gnnplace.problem("record:layered_200-k40x4")
record = gnnplace.load_record("layered_200-k40x4")
solution = gnnplace.load_planner("heft")(problem, gnnplace.Budget(), seed=0)
print(solution.objective_s / record.makespan_s)
```

```console
$ gnnplace place record:layered_200-k40x4 --planner gnn --seconds 60 --out better
$ gnnplace bench records --only layered_200-k40x4 --extend better/placement.json   # keeps it if it is better
$ gnnplace bench records                                                           # checks all of them
```

A record is one file in `cases/`: graph, devices, costs, the device of every op (16-bit numbers, zlib, base64), its seconds, how it
was found, and the least seconds of every planner that was run. Seconds after a planner are those of its search.

| record | ops | devices | step | lower bound | gap | found by |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
"""


def write_page(folder: Path = FOLDER) -> None:
    """Writes the list of all records into their folder."""
    write_text(folder / "README.md", page([load_record(name, folder) for name in record_names(folder)]))


def page(records: Sequence[Record]) -> str:
    """The list as Markdown."""
    gaps = [record.gap for record in records]
    head = _HEAD.format(
        count=len(records), optimal=sum(gap < OPTIMAL for gap in gaps), median=statistics.median(gaps or [0.0])
    )
    return head + "".join(_line(record) for record in records)


def _line(record: Record) -> str:
    found = record.found.planner + ("" if record.found.seconds is None else f", {record.found.seconds:g} s")
    step, bound = format_s(record.makespan_s), f"{format_s(record.lower_bound_s)} ({record.lower_bound})"
    cells = (record.name, record.ops, record.num_devices, step, bound, f"{record.gap:.1%}", found)
    return f"| {' | '.join(map(str, cells))} |\n"

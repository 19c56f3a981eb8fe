"""The op graph: ops, tensors between ops, and weights that several ops share, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray, IntArray, csr, frozen
from gnnplace.errors import InvalidGraph
from gnnplace.graph.orders import find_cycle, topological_order, upward_rank

if TYPE_CHECKING:
    import networkx as nx

_MOST_BYTES = 2**59
"""Largest total of a graph in bytes; sums over devices and ops then fit in int64."""
_MOST_STAGES = 2**31
_NO_STAGE = -1
_MOST_COST = 1e300
"""Largest total of seconds, FLOPs or accessed bytes over all ops."""


@dataclass(frozen=True, slots=True)
class Op:
    """One op of a graph to build; only the name is required."""

    name: str
    type: str = "Unknown"
    time_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by device name or device kind; the name takes precedence."""
    flops: float = 0.0
    bytes_accessed: float = 0.0
    memory_bytes: int = 0
    """Resident bytes of this op alone: weights that no other op reads."""
    workspace_bytes: int = 0
    """Bytes in use only while the op runs."""
    group: str | None = None
    """Colocation group; ops of one group share a device."""
    devices: tuple[str, ...] | None = None
    """Names or kinds of the devices that can run the op; None for all."""
    stage: int | None = None
    """Number of the layer, tower or block that an expert would keep on one device; None if unknown."""
    dtype: str = "float32"
    signature: str = ""
    """Type, shapes, dtypes and attributes in one string; ops with equal signatures cost the same."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Data from one op to its consumers; without consumers, a result that stays in memory until the step ends."""

    producer: str
    bytes: int
    consumers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedWeight:
    """A weight that several ops read: resident once on every device that runs one of these ops."""

    bytes: int
    consumers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class OpGraph:
    """A directed acyclic graph of `N` ops and `T` tensors, as arrays.

    Tensors are sorted by producer, so the outputs of op `v` are `range(output_offsets[v], output_offsets[v + 1])`.
    Build a graph with `OpGraph.build`.

    >>> graph = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 4, ("b",))])
    >>> graph.num_ops, graph.num_tensors, graph.consumers_of(0).tolist()
    (2, 1, [1])
    """

    name: str
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    flops: FloatArray  # [N]
    bytes_accessed: FloatArray  # [N]
    memory_bytes: IntArray  # [N] resident, without shared weights
    workspace_bytes: IntArray  # [N]
    tensor_producer: IntArray  # [T] ascending
    tensor_bytes: IntArray  # [T]
    consumer_offsets: IntArray  # [T + 1]
    consumers: IntArray  # [consumer_offsets[-1]] ops, each at most once per tensor
    weight_bytes: IntArray  # [W] shared weights
    weight_offsets: IntArray  # [W + 1]
    weight_consumers: IntArray  # [weight_offsets[-1]] ops
    time_s: Mapping[str, FloatArray]  # device name or kind -> [N], NaN if not stated
    colocation: IntArray  # [N] colocation group, -1 if none
    colocation_names: tuple[str, ...]
    allowed_devices: tuple[tuple[str, ...] | None, ...]  # [N]
    dtypes: tuple[str, ...]  # [N]
    signatures: tuple[str, ...]  # [N]
    stages: IntArray  # [N] stage of an expert placement, `_NO_STAGE` (-1) if unknown

    @classmethod
    def build(
        cls, name: str, ops: Sequence[Op], tensors: Sequence[Tensor] = (), shared_weights: Sequence[SharedWeight] = ()
    ) -> OpGraph:
        """Builds and checks the arrays from lists of ops, tensors and shared weights.

        Raises:
            InvalidGraph: a name is repeated or unknown, a cost is negative or not finite, or there is a cycle.
        """
        names = tuple(op.name for op in ops)
        index = {op_name: position for position, op_name in enumerate(names)}
        if len(index) < len(ops):
            twice = next(op_name for op_name, count in Counter(names).items() if count > 1)
            raise InvalidGraph(f"graph {name!r}: two ops are named {twice!r}; op names must be unique")

        def position(op_name: str, what: str) -> int:
            if op_name not in index:
                raise InvalidGraph(f"graph {name!r}: {what} names the op {op_name!r}, which is not in the graph")
            return index[op_name]

        producers = np.array([position(t.producer, "a tensor's producer") for t in tensors], dtype=np.int64)
        order = np.argsort(producers, kind="stable")
        consumer_lists = [
            sorted({position(c, f"a consumer of {tensors[t].producer!r}") for c in tensors[t].consumers}) for t in order
        ]
        weight_lists = [
            sorted({position(c, "a shared weight's consumer") for c in w.consumers}) for w in shared_weights
        ]

        def column(what: str, values: list[Any], owners: Sequence[str] = names, dtype: type = np.int64) -> NDArray[Any]:
            try:
                return frozen(values, dtype)
            except OverflowError:
                _, owner = max(zip(map(abs, values), owners, strict=True))
                raise InvalidGraph(f"graph {name!r}: {what} of op {owner!r} has too many digits") from None

        kinds = sorted({key for op in ops for key in op.time_s})
        group_names = sorted({op.group for op in ops if op.group is not None})
        group_index = {group: i for i, group in enumerate(group_names)}
        return cls(
            name=name,
            op_names=names,
            op_types=tuple(op.type for op in ops),
            flops=column("flops", [op.flops for op in ops], dtype=np.float64),
            bytes_accessed=column("bytes_accessed", [op.bytes_accessed for op in ops], dtype=np.float64),
            memory_bytes=column("memory_bytes", [op.memory_bytes for op in ops]),
            workspace_bytes=column("workspace_bytes", [op.workspace_bytes for op in ops]),
            tensor_producer=frozen(producers[order], np.int64),
            tensor_bytes=column("a tensor", [tensors[t].bytes for t in order], [tensors[t].producer for t in order]),
            consumer_offsets=frozen(np.cumsum([0, *map(len, consumer_lists)]), np.int64),
            consumers=frozen([c for row in consumer_lists for c in row], np.int64),
            weight_bytes=column(
                "a weight", [w.bytes for w in shared_weights], [f"{w.consumers}" for w in shared_weights]
            ),
            weight_offsets=frozen(np.cumsum([0, *map(len, weight_lists)]), np.int64),
            weight_consumers=frozen([c for row in weight_lists for c in row], np.int64),
            time_s={key: frozen([op.time_s.get(key, np.nan) for op in ops], np.float64) for key in kinds},
            colocation=frozen([-1 if op.group is None else group_index[op.group] for op in ops], np.int64),
            colocation_names=tuple(group_names),
            allowed_devices=tuple(op.devices for op in ops),
            dtypes=tuple(op.dtype for op in ops),
            signatures=tuple(op.signature for op in ops),
            stages=column("stage", [_NO_STAGE if op.stage is None else op.stage for op in ops]),
        )

    def __post_init__(self) -> None:
        largest = float(np.finfo(np.float64).max)
        costs = {"flops": self.flops, "bytes_accessed": self.bytes_accessed}
        costs |= {f"time_s of {key!r}": np.where(np.isnan(row), 0.0, row) for key, row in self.time_s.items()}
        where = f"graph {self.name!r}"
        for label, values, most in (
            *((label, values, largest) for label, values in costs.items()),
            ("memory_bytes", self.memory_bytes, _MOST_BYTES),
            ("workspace_bytes", self.workspace_bytes, _MOST_BYTES),
            ("stage", np.where(self.stages == _NO_STAGE, 0, self.stages), _MOST_STAGES),
        ):
            for bad in np.flatnonzero(~((values >= 0) & (values <= most)))[:1]:
                op = self.op_names[bad]
                raise InvalidGraph(f"{where}: {label} of op {op!r} is {values[bad]}; expected 0 to {most:.3g}")
        for label, values in costs.items():
            with np.errstate(over="ignore"):
                total = values.sum()
            if total > _MOST_COST:
                raise InvalidGraph(f"{where}: {label} of all ops add up to {total:.3g}; check the costs")
        for bad in np.flatnonzero(self.tensor_bytes < 0)[:1]:
            producer = self.op_names[self.tensor_producer[bad]]
            raise InvalidGraph(f"{where}: a tensor of op {producer!r} has {self.tensor_bytes[bad]} bytes")
        if (self.weight_bytes < 0).any():
            raise InvalidGraph(f"{where}: a shared weight has {self.weight_bytes.min()} bytes")
        sizes = (self.memory_bytes, self.workspace_bytes, self.tensor_bytes, self.weight_bytes)
        total = sum(float(values.sum(dtype=np.float64)) for values in sizes)
        if total > _MOST_BYTES:
            raise InvalidGraph(
                f"{where}: its tensors and weights add up to {total / 2**60:.3g} EiB; "
                f"expected at most {_MOST_BYTES / 2**60:.3g} EiB, so check the sizes"
            )
        if len(self.topological_order) < self.num_ops:
            cycle = find_cycle(self.num_ops, self.successor_offsets, self.successors)
            path = " -> ".join(self.op_names[v] for v in (cycle if len(cycle) < 8 else [*cycle[:7], cycle[-1]]))
            raise InvalidGraph(f"{where} has a cycle ({path}); an op graph is acyclic")

    @property
    def num_ops(self) -> int:
        """`N`: number of ops."""
        return len(self.op_names)

    @property
    def num_tensors(self) -> int:
        """`T`: number of tensors."""
        return len(self.tensor_bytes)

    @cached_property
    def op_index(self) -> Mapping[str, int]:
        """Index of each op by name."""
        return {name: index for index, name in enumerate(self.op_names)}

    @cached_property
    def output_offsets(self) -> IntArray:
        """`[N + 1]` first output tensor of each op."""
        return frozen(np.searchsorted(self.tensor_producer, np.arange(self.num_ops + 1)), np.int64)

    @cached_property
    def consumer_tensor(self) -> IntArray:
        """`[len(consumers)]` tensor of each entry of `consumers`."""
        return frozen(np.repeat(np.arange(self.num_tensors), np.diff(self.consumer_offsets)), np.int64)

    @cached_property
    def _inputs(self) -> tuple[IntArray, IntArray]:
        return csr(self.consumers, self.consumer_tensor, self.num_ops)

    @property
    def input_offsets(self) -> IntArray:
        """`[N + 1]` first entry of each op in `input_tensors`."""
        return self._inputs[0]

    @property
    def input_tensors(self) -> IntArray:
        """`[len(consumers)]` tensors that each op reads, grouped by op."""
        return self._inputs[1]

    @cached_property
    def edges(self) -> tuple[IntArray, IntArray]:
        """Producer and consumer op of every (tensor, consumer) pair, `[E]` each; parallel edges stay separate."""
        return frozen(self.tensor_producer[self.consumer_tensor], np.int64), self.consumers

    @cached_property
    def successor_offsets(self) -> IntArray:
        """`[N + 1]` first entry of each op in `successors`."""
        return frozen(self.consumer_offsets[self.output_offsets], np.int64)

    @property
    def successors(self) -> IntArray:
        """`[E]` consumer ops grouped by producer op: the array `consumers`, as tensors are sorted by producer."""
        return self.consumers

    @cached_property
    def topological_order(self) -> IntArray:
        """`[N]` ops in Kahn's order: producers come before consumers."""
        return frozen(topological_order(self.num_ops, self.successor_offsets, self.successors), np.int64)

    @cached_property
    def total_weight_bytes(self) -> int:
        """Resident bytes of the whole graph on one device."""
        return int(self.memory_bytes.sum() + self.weight_bytes.sum())

    def upward_rank(self, op_cost: FloatArray, edge_cost: FloatArray | None = None) -> FloatArray:
        """`[N]` cost of the most expensive path from the start of each op to the end of the graph; see `orders`.

        Edges `[E]` are free by default: the largest rank is then a lower bound of every schedule.
        """
        edge_cost = np.zeros(len(self.successors)) if edge_cost is None else edge_cost
        return upward_rank(self.topological_order, op_cost, self.successor_offsets, self.successors, edge_cost)

    def consumers_of(self, tensor: int) -> IntArray:
        """Ops that read a tensor."""
        return self.consumers[self.consumer_offsets[tensor] : self.consumer_offsets[tensor + 1]]

    def inputs_of(self, op: int) -> IntArray:
        """Tensors that an op reads."""
        return self.input_tensors[self.input_offsets[op] : self.input_offsets[op + 1]]

    def weights_of(self, weight: int) -> IntArray:
        """Ops that read a shared weight."""
        return self.weight_consumers[self.weight_offsets[weight] : self.weight_offsets[weight + 1]]

    def to_networkx(self) -> nx.DiGraph[str]:
        """Converts to networkx: ops become nodes with their costs, and edges have the bytes between two ops."""
        import networkx as nx

        view: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        costs = ("flops", "bytes_accessed", "memory_bytes", "workspace_bytes")
        for index, op in enumerate(self.op_names):
            view.add_node(op, type=self.op_types[index], **{cost: getattr(self, cost)[index].item() for cost in costs})
        for producer, consumer, tensor in zip(*self.edges, self.consumer_tensor, strict=True):
            source, target = self.op_names[producer], self.op_names[consumer]
            already = view.get_edge_data(source, target, {"bytes": 0})["bytes"]
            view.add_edge(source, target, bytes=already + int(self.tensor_bytes[tensor]))
        return view

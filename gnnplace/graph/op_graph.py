"""The computation as arrays: ops, the tensors between them, and the weights that several ops share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.arrays import FloatArray, IntArray, csr, frozen
from gnnplace.errors import InvalidGraph
from gnnplace.graph.orders import find_cycle, topological_order

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Op", "OpGraph", "SharedWeight", "Tensor"]

MOST_BYTES = 2**59
"""Of a whole graph: sums over devices and ops stay below what int64 holds."""
MOST_STAGES = 2**31
MOST_COST = 1e300
"""Seconds, operations or bytes of all ops together."""


@dataclass(frozen=True, slots=True)
class Op:
    """One op as it is written down; only the name is required."""

    name: str
    type: str = "Unknown"
    time_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds on a device, by device name or by device kind; the name wins."""
    flops: float = 0.0
    bytes_accessed: float = 0.0
    memory_bytes: int = 0
    """Resident bytes of this op alone (its weights that no other op uses)."""
    workspace_bytes: int = 0
    """Bytes that are in use only while the op runs."""
    group: str | None = None
    """Ops of one colocation group share a device."""
    devices: tuple[str, ...] | None = None
    """Names or kinds of the devices that can run the op; None means all."""
    stage: int | None = None
    """The layer, tower or block that people would keep on one device, numbered in their order; None where unknown."""
    dtype: str = "float32"
    signature: str = ""
    """Type, shapes, dtypes and attributes in one string: equal signatures cost the same."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Data from one op to its consumers; no consumer means a result that stays until the step ends."""

    producer: str
    bytes: int
    consumers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedWeight:
    """A weight that several ops read: resident once on every device that runs one of them."""

    bytes: int
    consumers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class OpGraph:
    """A directed acyclic graph of `N` ops and `T` tensors, as arrays.

    Tensors are sorted by producer, so the outputs of op `v` are
    `range(output_offsets[v], output_offsets[v + 1])`. Build one with `OpGraph.build`.

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
    time_s: Mapping[str, FloatArray]  # device name or kind -> [N], NaN where nothing is stated
    colocation: IntArray  # [N] colocation group, -1 when free
    colocation_names: tuple[str, ...]
    allowed_devices: tuple[tuple[str, ...] | None, ...]  # [N]
    dtypes: tuple[str, ...]  # [N]
    signatures: tuple[str, ...]  # [N]
    stages: IntArray  # [N] stage of a human placement, -1 where unknown

    @classmethod
    def build(
        cls,
        name: str,
        ops: Sequence[Op],
        tensors: Sequence[Tensor] = (),
        shared_weights: Sequence[SharedWeight] = (),
    ) -> OpGraph:
        """The arrays of a list of ops and tensors, checked.

        Raises:
            InvalidGraph: a repeated or unknown name, a cost that is negative or no finite number, a cycle.
        """
        index = {op.name: position for position, op in enumerate(ops)}
        if len(index) < len(ops):
            seen: set[str] = set()
            twice = next(op.name for op in ops if op.name in seen or seen.add(op.name))  # type: ignore[func-returns-value]
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
        _check_counts(name, ops, tensors, shared_weights)
        kinds = sorted({key for op in ops for key in op.time_s})
        group_names = sorted({op.group for op in ops if op.group is not None})
        group_index = {group: i for i, group in enumerate(group_names)}
        return cls(
            name=name,
            op_names=tuple(op.name for op in ops),
            op_types=tuple(op.type for op in ops),
            flops=frozen([op.flops for op in ops], np.float64),
            bytes_accessed=frozen([op.bytes_accessed for op in ops], np.float64),
            memory_bytes=frozen([op.memory_bytes for op in ops], np.int64),
            workspace_bytes=frozen([op.workspace_bytes for op in ops], np.int64),
            tensor_producer=frozen(producers[order], np.int64),
            tensor_bytes=frozen([tensors[t].bytes for t in order], np.int64),
            consumer_offsets=_offsets(consumer_lists),
            consumers=frozen([c for row in consumer_lists for c in row], np.int64),
            weight_bytes=frozen([w.bytes for w in shared_weights], np.int64),
            weight_offsets=_offsets(weight_lists),
            weight_consumers=frozen([c for row in weight_lists for c in row], np.int64),
            time_s={key: frozen([op.time_s.get(key, np.nan) for op in ops], np.float64) for key in kinds},
            colocation=frozen([-1 if op.group is None else group_index[op.group] for op in ops], np.int64),
            colocation_names=tuple(group_names),
            allowed_devices=tuple(op.devices for op in ops),
            dtypes=tuple(op.dtype for op in ops),
            signatures=tuple(op.signature for op in ops),
            stages=frozen([-1 if op.stage is None else op.stage for op in ops], np.int64),
        )

    def __post_init__(self) -> None:
        for label, values in (
            ("flops", self.flops),
            ("bytes_accessed", self.bytes_accessed),
            ("memory_bytes", self.memory_bytes),
            ("workspace_bytes", self.workspace_bytes),
            *((f"time_s of {key!r}", np.where(np.isnan(row), 0.0, row)) for key, row in self.time_s.items()),
        ):
            bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
            if bad.size:
                raise InvalidGraph(
                    f"graph {self.name!r}: {label} of op {self.op_names[bad[0]]!r} is {values[bad[0]]}; "
                    "costs are finite and not negative"
                )
            with np.errstate(over="ignore"):
                total = values.sum(dtype=np.float64)
            if total > MOST_COST:
                raise InvalidGraph(f"graph {self.name!r}: {label} of all ops add up to {total:.3g}; check the costs")
        bad = np.flatnonzero(self.tensor_bytes < 0)
        if bad.size:
            producer = self.op_names[self.tensor_producer[bad[0]]]
            raise InvalidGraph(
                f"graph {self.name!r}: a tensor of op {producer!r} has {self.tensor_bytes[bad[0]]} bytes"
            )
        if len(self.topological_order) < self.num_ops:
            cycle = find_cycle(self.num_ops, self.successor_offsets, self.successors)
            path = " -> ".join(self.op_names[v] for v in (cycle if len(cycle) < 8 else [*cycle[:7], cycle[-1]]))
            raise InvalidGraph(f"graph {self.name!r} has a cycle ({path}); an op graph is acyclic")

    @property
    def num_ops(self) -> int:
        """`N`."""
        return len(self.op_names)

    @property
    def num_tensors(self) -> int:
        """`T`."""
        return len(self.tensor_bytes)

    @cached_property
    def op_index(self) -> Mapping[str, int]:
        """Op name -> index."""
        return {name: index for index, name in enumerate(self.op_names)}

    @cached_property
    def output_offsets(self) -> IntArray:
        """`[N + 1]`: the outputs of op `v` are the tensors from `output_offsets[v]` up to `output_offsets[v + 1]`."""
        return frozen(np.searchsorted(self.tensor_producer, np.arange(self.num_ops + 1)), np.int64)

    @cached_property
    def consumer_tensor(self) -> IntArray:
        """`[len(consumers)]`: the tensor of each entry of `consumers`."""
        return frozen(np.repeat(np.arange(self.num_tensors), np.diff(self.consumer_offsets)), np.int64)

    @cached_property
    def _inputs(self) -> tuple[IntArray, IntArray]:
        return csr(self.consumers, self.consumer_tensor, self.num_ops)

    @property
    def input_offsets(self) -> IntArray:
        """`[N + 1]`: where the inputs of each op begin in `input_tensors`."""
        return self._inputs[0]

    @property
    def input_tensors(self) -> IntArray:
        """`[len(consumers)]`: the tensors that each op reads, grouped by op."""
        return self._inputs[1]

    @cached_property
    def edges(self) -> tuple[IntArray, IntArray]:
        """Producer and consumer op of every (tensor, consumer) pair, `[E]` each; parallel edges stay apart."""
        return self.tensor_producer[self.consumer_tensor], self.consumers

    @cached_property
    def successor_offsets(self) -> IntArray:
        """`[N + 1]`: where the successors of each op begin in `successors`."""
        return frozen(self.consumer_offsets[self.output_offsets], np.int64)

    @property
    def successors(self) -> IntArray:
        """`[E]`: consumer ops grouped by producer op; the same array as `consumers`, as tensors follow their producers."""
        return self.consumers

    @cached_property
    def topological_order(self) -> IntArray:
        """`[N]`: ops so that producers come first; among free ones the smaller index first come first served."""
        return topological_order(self.num_ops, self.successor_offsets, self.successors)

    @cached_property
    def total_weight_bytes(self) -> int:
        """Resident bytes of the whole graph on one device."""
        return int(self.memory_bytes.sum() + self.weight_bytes.sum())

    def consumers_of(self, tensor: int) -> IntArray:
        """The ops that read a tensor."""
        return self.consumers[self.consumer_offsets[tensor] : self.consumer_offsets[tensor + 1]]

    def inputs_of(self, op: int) -> IntArray:
        """The tensors that an op reads.

        >>> graph = OpGraph.build("g", [Op("a"), Op("b"), Op("c")], [Tensor("a", 4, ("c",)), Tensor("b", 4, ("c",))])
        >>> graph.inputs_of(2).tolist()
        [0, 1]
        """
        return self.input_tensors[self.input_offsets[op] : self.input_offsets[op + 1]]

    def outputs_of(self, op: int) -> range:
        """The tensors that an op produces.

        >>> graph = OpGraph.build("g", [Op("a"), Op("b")], [Tensor("a", 4, ("b",)), Tensor("a", 8, ("b",))])
        >>> graph.outputs_of(0), graph.outputs_of(1)
        (range(0, 2), range(2, 2))
        """
        return range(int(self.output_offsets[op]), int(self.output_offsets[op + 1]))

    def weights_of(self, weight: int) -> IntArray:
        """The ops that read a shared weight.

        >>> OpGraph.build("g", [Op("a"), Op("b")], shared_weights=[SharedWeight(4, ("a", "b"))]).weights_of(0).tolist()
        [0, 1]
        """
        return self.weight_consumers[self.weight_offsets[weight] : self.weight_offsets[weight + 1]]

    def to_networkx(self) -> nx.DiGraph[str]:
        """The graph for networkx: ops as nodes with their costs, the bytes between two ops as edge attribute.

        >>> graph = OpGraph.build("g", [Op("a"), Op("b")], [Tensor("a", 4, ("b",)), Tensor("a", 8, ("b",))])
        >>> list(graph.to_networkx().edges(data="bytes"))
        [('a', 'b', 12)]
        """
        import networkx as nx

        view: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        for index, op in enumerate(self.op_names):
            view.add_node(
                op,
                type=self.op_types[index],
                flops=float(self.flops[index]),
                bytes_accessed=float(self.bytes_accessed[index]),
                memory_bytes=int(self.memory_bytes[index]),
                workspace_bytes=int(self.workspace_bytes[index]),
            )
        for entry, (producer, consumer) in enumerate(zip(*self.edges, strict=True)):
            source, target = self.op_names[producer], self.op_names[consumer]
            already = view.get_edge_data(source, target, {"bytes": 0})["bytes"]
            view.add_edge(source, target, bytes=already + int(self.tensor_bytes[self.consumer_tensor[entry]]))
        return view


def _check_counts(
    name: str, ops: Sequence[Op], tensors: Sequence[Tensor], shared_weights: Sequence[SharedWeight]
) -> None:
    """Bytes add up to what an array of int64 holds, also where all of them are counted on one device."""
    for op in ops:
        for label, value, most in (
            ("memory_bytes", op.memory_bytes, MOST_BYTES),
            ("workspace_bytes", op.workspace_bytes, MOST_BYTES),
            ("stage", op.stage or 0, MOST_STAGES),
        ):
            if abs(value) > most:
                raise InvalidGraph(f"graph {name!r}: {label} of op {op.name!r} is {value}; expected 0 to {most}")
        for label, count in (("flops", op.flops), ("bytes_accessed", op.bytes_accessed)):
            if isinstance(count, int) and count.bit_length() > 1000:
                raise InvalidGraph(f"graph {name!r}: {label} of op {op.name!r} is beyond what a float holds")
    total = (
        sum(op.memory_bytes + op.workspace_bytes for op in ops)
        + sum(abs(tensor.bytes) for tensor in tensors)
        + sum(abs(weight.bytes) for weight in shared_weights)
    )
    if total > MOST_BYTES:
        raise InvalidGraph(
            f"graph {name!r}: its tensors and weights add up to {total / 2**60:.3g} EiB; "
            f"up to {MOST_BYTES / 2**60:.3g} EiB can be counted, so check the sizes"
        )


def _offsets(rows: Sequence[Sequence[int]]) -> IntArray:
    return frozen(np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)]), np.int64)

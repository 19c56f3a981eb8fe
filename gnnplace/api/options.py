"""Options of a search, as an object or as keyword arguments, and sizes of symbolic dimensions."""

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, get_args

import numpy as np

from gnnplace.arguments import check_function, check_number, check_paths, check_whole
from gnnplace.errors import GnnplaceError, UnsupportedModel, shown
from gnnplace.objectives import DimsObjective, Objective
from gnnplace.onnx_io.shapes.tensor_info import MAX_SIZE
from gnnplace.planners.solution import Budget, Progress

Dims = Mapping[str, int | Sequence[int]]
Inputs = Mapping[str, Any] | str | Path
"""Arrays by the names of inputs, or an `.npz` file of them."""
"""One or several sizes by name of the dimension."""

_MAX_SHAPES = 32
"""Maximum number of shapes; every evaluation simulates each of them."""


def sizes_between(low: int, high: int) -> tuple[int, ...]:
    """The sizes that stand for a range: its ends and their geometric mean.

    >>> sizes_between(1, 64)
    (1, 8, 64)
    """
    return tuple(sorted({low, round(math.sqrt(low * high)), high}))


def shapes_of(dims: Dims) -> tuple[dict[str, int], ...]:
    """Every combination of sizes, the largest sizes first.

    >>> shapes_of({"batch": (1, 8), "sequence": 16})
    ({'batch': 8, 'sequence': 16}, {'batch': 1, 'sequence': 16})

    Raises:
        UnsupportedModel: a dimension has no size or something else, or there are too many combinations.
    """
    if not isinstance(dims, Mapping):
        raise UnsupportedModel(f"dims is {shown(dims)}; expected a dictionary from dimensions to sizes")
    rows = {name: _sizes(name, sizes) for name, sizes in dims.items()}
    empty = next((name for name, sizes in rows.items() if not sizes), None)
    if empty is not None:
        raise UnsupportedModel(f"dimension {empty!r} is given no size; give one number or several")
    count = math.prod(len(sizes) for sizes in rows.values())
    if count > _MAX_SHAPES:
        raise UnsupportedModel(
            f"the sizes of {', '.join(rows)} make {count} shapes; at most {_MAX_SHAPES} can be optimised for, so give fewer sizes"
        )
    return tuple(dict(zip(rows, sizes, strict=True)) for sizes in itertools.product(*rows.values()))


def _sizes(name: object, given: object) -> list[int]:
    """The sizes of a dimension without repetition, the largest first."""
    sizes = np.asarray(given).reshape(-1) if isinstance(given, int | np.integer | Sequence | np.ndarray) else None
    if not isinstance(name, str) or sizes is None or (sizes.size and sizes.dtype.kind not in "iu"):
        raise UnsupportedModel(f"dimension {shown(name)} is given {shown(given)}; expected a whole number or several")
    if sizes.size and sizes.max() > MAX_SIZE:
        raise UnsupportedModel(f"dimension {name!r} is given {shown(given)}; expected at most {MAX_SIZE:,}")
    return sorted(set(sizes.tolist()), reverse=True)


@dataclass(frozen=True)
class PlaceOptions:
    """Options of `place`, `compare`, `evaluate` and `problem`; each field is also a keyword argument of them.

    >>> PlaceOptions(planner="annealing", seconds=2.0, dims={"batch": 8}).budget.evaluations
    2000
    """

    planner: str = "gnn"
    """Name of the planner; `gnnplace planners` lists them."""
    objective: Objective = "latency"
    evaluations: int | None = 2000
    """Maximum number of placements that a planner evaluates; None: as many as `seconds` allow."""
    seconds: float | None = None
    """Maximum seconds of a search; with `evaluations`, the limit that is reached first ends it. Alone, all cores anneal.

    Seconds of compilation are added: two minutes in the first search after `pip install` (`make install` compiles ahead), half a second
    in later processes."""
    measure: bool = False
    """Execute placements on the devices, so that times are measured and not simulated."""
    force: bool = False
    """Measure even where other work keeps a device busy."""
    seed: int = 0
    max_groups: int | None = None
    """Maximum number of op groups; None: 512, and for large graphs and some planners no groups at all."""
    dims: Dims = field(default_factory=dict)
    """Sizes of symbolic dimensions; several sizes of one dimension make several shapes."""
    dims_objective: DimsObjective = "worst"
    """How the times at several shapes combine: the worst or the mean is minimised."""
    inputs: Inputs | None = field(default=None, compare=False)
    """Inputs that the model is measured with, in place of random ones; their shapes are the sizes of all dimensions."""
    custom_ops: Sequence[str | Path] = ()
    """Shared libraries with operators that ONNX Runtime does not have."""
    policy: str | Path | None = None
    """Policy of the planner `gnn`: `shipped`, `prior`, `uniform` or the file of a trained one; None: the shipped one."""
    ray: str | None = None
    """Address of a Ray cluster that shares the work; see `gnnplace.distributed.connected`."""
    on_progress: Callable[[Progress], None] | None = field(default=None, compare=False)
    """Receives the state of the running search."""
    on_warning: Callable[[str], None] = field(default=lambda text: None, compare=False)
    """Receives the warnings of `compare`, `problem` and `profile`, whose results do not contain them."""

    def __post_init__(self) -> None:
        """Raises GnnplaceError for a value that no option may have."""
        for name, least in (("evaluations", 0), ("seed", 0), ("max_groups", 1)):
            value: Any = getattr(self, name)
            if value is not None or name == "seed":
                check_whole(name, value, least)
        if self.seconds is not None:
            check_number("seconds", self.seconds)
        shapes_of(self.dims)
        if self.inputs is not None and not isinstance(self.inputs, Mapping | str | Path):
            raise GnnplaceError(f"inputs is {shown(self.inputs)}; expected arrays by name, or an .npz file")
        if self.inputs is not None and self.dims:
            raise GnnplaceError("inputs have sizes already; leave out the sizes of dimensions (dims, --dim)")
        check_paths("custom_ops", self.custom_ops)
        check_function("on_warning", self.on_warning)
        if self.on_progress is not None:
            check_function("on_progress", self.on_progress)
        for name, known in (("objective", Objective), ("dims_objective", DimsObjective)):
            if getattr(self, name) not in get_args(known):
                raise GnnplaceError(f"{name} is {shown(getattr(self, name))}; expected {' or '.join(get_args(known))}")

    @property
    def budget(self) -> Budget:
        """The limits of the chosen planner's search."""
        return Budget(self.evaluations, self.seconds, self.on_progress)


def with_keywords(options: PlaceOptions | None, keywords: Mapping[str, Any]) -> PlaceOptions:
    """The options with other values for some fields.

    Raises:
        GnnplaceError: the options are something else, or a value is none that an option may have.
    """
    if options is not None and not isinstance(options, PlaceOptions):
        raise GnnplaceError(
            f"the options are {shown(options)}; expected PlaceOptions, or keywords such as planner='heft'"
        )
    return replace(options or PlaceOptions(), **keywords)


class Keywords(TypedDict, total=False):
    """The fields of `PlaceOptions` as keyword arguments."""

    planner: str
    objective: Objective
    evaluations: int | None
    seconds: float | None
    measure: bool
    force: bool
    seed: int
    max_groups: int | None
    dims: Dims
    dims_objective: DimsObjective
    inputs: Inputs | None
    custom_ops: Sequence[str | Path]
    policy: str | Path | None
    ray: str | None
    on_progress: Callable[[Progress], None] | None
    on_warning: Callable[[str], None]


_Function = TypeVar("_Function", bound=Callable[..., object])


def with_keyword_signature(function: _Function) -> _Function:
    """Adds the fields of `PlaceOptions` to the signature that `help` and completion show."""
    signature = inspect.signature(function)
    fields = inspect.signature(PlaceOptions).parameters.values()
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "keywords"]
    parameters += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in fields]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function

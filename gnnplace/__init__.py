"""gnnplace: which device runs which op of an ONNX model, so that one step takes the least time and fits in memory.

The public names load on first use, so that `import gnnplace` needs neither torch nor ONNX Runtime.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gnnplace.compiled_code import find_room_for_compiled_code

if TYPE_CHECKING:
    from gnnplace.api import PlaceOptions, Plan, compare, evaluate, load_topology, place, read_onnx
    from gnnplace.distributed.execution import DistributedSession
    from gnnplace.running.session import Session

__version__ = "0.1.0"

__all__ = [
    "DistributedSession",
    "PlaceOptions",
    "Plan",
    "Session",
    "__version__",
    "compare",
    "evaluate",
    "load_topology",
    "place",
    "read_onnx",
]

find_room_for_compiled_code()
_HOMES = {"DistributedSession": "gnnplace.distributed.execution", "Session": "gnnplace.running.session"}


def __getattr__(name: str) -> Any:
    """The public name, from the module that defines it."""
    if name not in __all__:
        raise AttributeError(f"module 'gnnplace' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "gnnplace.api")), name)


def __dir__() -> list[str]:
    return __all__

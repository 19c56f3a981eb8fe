"""One case of ONNX's test suite for backends: by one plain session, and cut over two devices."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnnplace.errors import GnnplaceError
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.running.onnx_backend import DEVICES, PlacedBackend
from tests.robustness.backend.cases import BackendCase

__all__ = ["Outcome", "compare", "placed_outcome", "plain_outcome"]

_REASON_CHARACTERS = 200


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    verdict: str
    """`passes`; `differs`: outputs are not as expected; `agrees`: they differ, and not from those of the plain session; `fails`:
    an error while it runs; `refuses`: an error before; `breaks`: an error of another kind than a caller may expect; `crashes`:
    the process ended."""
    reason: str = ""
    segments: int = 0


def compare(case: BackendCase, seed: int) -> dict[str, dict[str, Any]]:
    """The outcomes of a case, plain and placed, as what JSON knows."""
    plain, outputs = plain_outcome(case)
    return {"plain": asdict(plain), "placed": asdict(placed_outcome(case, seed, outputs))}


def plain_outcome(case: BackendCase) -> tuple[Outcome, list[Sequence[Any]]]:
    """Of one session of ONNX Runtime, and its outputs as far as it came.

    When values travel, each op has a kernel of its own in the parts, so there the session must not optimise any op away.
    """
    outputs: list[Sequence[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(case.model)
        try:
            session = PlainSession(path, DEVICES[0], optimised=not case.travels)
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            return Outcome("refuses", _reason(error, folder)), outputs
    try:
        with session:
            for inputs, _ in case.data:
                # A BatchNormalization that trains writes through an Identity into the arrays that it is given.
                given = copy.deepcopy(inputs)
                outputs.append(session.run(dict(zip(session.inputs, given, strict=True))))
    except Exception as error:  # as above
        return Outcome("fails", _reason(error)), outputs
    difference = _difference(case, [expected for _, expected in case.data], outputs)
    return Outcome("differs" if difference else "passes", difference), outputs


def placed_outcome(case: BackendCase, seed: int, plain_outputs: Sequence[Sequence[Any]] = ()) -> Outcome:
    """Of the parts on two devices; a plain session may be near the limit of what is as expected, and the parts beyond it.

    Between two ops of one session ONNX Runtime leaves float16 in float32 where it computes in that; where the model is cut
    between them, the value is of the type that the model says.
    """
    segments, outputs = 0, []
    try:
        model = PlacedBackend.prepare(case.proto, seed=seed)
        segments = model.num_segments
        try:
            for inputs, _ in case.data:
                outputs.append(model.run(inputs))
        finally:
            model.close()
    except GnnplaceError as error:
        return Outcome("fails" if segments else "refuses", _reason(error), segments)
    except Exception as error:  # what the suite is there to find
        return Outcome("breaks", _reason(error), segments)
    difference = _difference(case, [expected for _, expected in case.data], outputs)
    if not difference:
        return Outcome("passes", "", segments)
    return Outcome("differs" if _difference(case, plain_outputs, outputs) else "agrees", difference, segments)


def _difference(case: BackendCase, expected: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> str:
    """What is wrong with the outputs for each of the inputs; nothing when they are as expected."""
    try:
        for wanted, outputs in zip(expected, found, strict=True):
            case.check(wanted, outputs)
    except (AssertionError, ValueError) as error:  # ValueError: more or fewer outputs
        return _reason(error)
    return ""


def _reason(error: Exception, folder: str = "") -> str:
    """The beginning of what an error says, without the folder that the model happened to be in."""
    said = " ".join(str(error).split()) or type(error).__name__
    return (said.replace(f"{folder}/", "") if folder else said)[:_REASON_CHARACTERS]

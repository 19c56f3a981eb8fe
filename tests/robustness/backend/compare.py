"""One case of ONNX's backend test suite, run by one plain session and cut over two devices."""

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

_REASON_CHARACTERS = 200


@dataclass(frozen=True)
class Outcome:
    verdict: str
    """`passes`; `differs`: unexpected outputs; `agrees`: unexpected outputs that equal the plain session's; `refuses`: an
    error before the run; `fails`: an error during the run; `breaks`: an error of an undocumented type; `crashes`."""
    reason: str = ""
    segments: int = 0


def compare(case: BackendCase, seed: int, placed: bool = True) -> dict[str, dict[str, Any]]:
    """Outcomes of a case as JSON: of a plain session, and with `placed` of the parts."""
    plain, outputs = plain_outcome(case)
    return {"plain": asdict(plain), **({"placed": asdict(placed_outcome(case, seed, outputs))} if placed else {})}


def plain_outcome(case: BackendCase) -> tuple[Outcome, list[Sequence[Any]]]:
    """Outcome of one session of ONNX Runtime, and its outputs until an error.

    When values travel, each op of the parts has a kernel of its own, so the session must not optimise ops away.
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
                # A BatchNormalization in training mode writes through an Identity into its input arrays.
                own = copy.deepcopy(inputs)
                outputs.append(session.run(dict(zip(session.inputs, own, strict=True))))
    except Exception as error:  # as above
        return Outcome("fails", _reason(error)), outputs
    difference = _difference(case, [expected for _, expected in case.data], outputs)
    return Outcome("differs" if difference else "passes", difference), outputs


def placed_outcome(case: BackendCase, seed: int, plain_outputs: Sequence[Sequence[Any]] = ()) -> Outcome:
    """Outcome of the parts on two devices, which may exceed a tolerance that the plain session just meets.

    Within one session ONNX Runtime keeps float16 values in float32 between ops that compute in float32; at a cut the value
    is rounded to the model's type.
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
    except Exception as error:  # the errors that this suite looks for
        return Outcome("breaks", _reason(error), segments)
    difference = _difference(case, [expected for _, expected in case.data], outputs)
    if not difference:
        return Outcome("passes", "", segments)
    return Outcome("differs" if _difference(case, plain_outputs, outputs) else "agrees", difference, segments)


def _difference(case: BackendCase, expected: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> str:
    """First unexpected output; empty without one."""
    try:
        for wanted, outputs in zip(expected, found, strict=True):
            case.check(wanted, outputs)
    except (AssertionError, ValueError) as error:  # ValueError: more or fewer outputs
        return _reason(error)
    return ""


def _reason(error: Exception, folder: str = "") -> str:
    """Beginning of an error message, without the temporary folder of the model."""
    text = " ".join(str(error).split()) or type(error).__name__
    return (text.replace(f"{folder}/", "") if folder else text)[:_REASON_CHARACTERS]

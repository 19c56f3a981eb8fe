"""What a shell offers when Tab is pressed: names, read from small tables, so that the answer is there at once."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

__all__ = ["COMPLETION", "device_sets", "models", "planners", "recipes", "suites", "whole_words"]

COMPLETION = "_GNNPLACE_COMPLETE"
"""The environment variable that asks for completions, and by its value for which shell."""

Item = tuple[str, str]


def planners(incomplete: str) -> list[Item]:
    """Planners by name; several with commas between them."""
    from gnnplace.planners.catalog import PLANNERS

    before = _until(incomplete, ",")
    return _offered(incomplete, ((before + name, entry.description) for name, entry in PLANNERS.items()))


def device_sets(incomplete: str) -> list[Item]:
    """Presets, which `+` joins, or the devices of this machine, which `,` joins."""
    before = _until(incomplete, ",+")
    here = [(name, "of this machine") for name in _real_devices() if name not in incomplete.split(",")]
    if before.endswith(","):
        known = here
    else:
        from gnnplace.devices.presets import CPUS, GPUS

        known = [
            *((name, gpu.source) for name, gpu in GPUS.items()),
            *((name, cpu.source) for name, cpu in CPUS.items()),
        ]
        if not before:
            known = [("auto", "every core and GPU of this machine"), *here, *known]
    return _offered(incomplete, ((before + name, what) for name, what in known))


def models(incomplete: str) -> list[Item]:
    """`zoo:NAME`; nothing where a file may be meant, so that the shell offers files."""
    if not incomplete.startswith("z"):
        return []
    return _offered(incomplete, ((f"zoo:{name}", what) for name, what in _recipes()))


def recipes(incomplete: str) -> list[Item]:
    """Recipes of the zoo by name."""
    return _offered(incomplete, _recipes())


def suites(incomplete: str) -> list[Item]:
    """Suites of the bench by name."""
    from gnnplace.bench.suites import SUITES

    return _offered(incomplete, ((name, suite.description) for name, suite in SUITES.items()))


@contextmanager
def whole_words(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Bash splits words at colons before it asks, and puts what is printed within the block after the last one.

    So `zoo`, `:`, `nmt` become one word again, and of `zoo:nmt_2` only `nmt_2` is printed. Other shells are let alone.
    """
    if environment.get(COMPLETION) != "complete_bash" or not environment.get("COMP_CWORD", "").isdigit():
        yield
        return
    joined = _joined(environment["COMP_WORDS"].split("\n")[: int(environment["COMP_CWORD"]) + 1])
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    begin, colon, _ = joined[-1].rpartition(":")
    with redirect_stdout(io.StringIO()) as printed:
        try:
            yield
        finally:
            names = [line.removeprefix(begin + colon) for line in printed.getvalue().split("\n") if line]
            os.write(1, "".join(f"{name}\n" for name in names).encode())


def _joined(words: list[str]) -> list[str]:
    """Words without the cuts at colons.

    >>> _joined(["gnnplace", "place", "zoo", ":", "nmt"])
    ['gnnplace', 'place', 'zoo:nmt']
    """
    joined = words[:1]
    for word in words[1:]:
        if word.startswith(":") or joined[-1].endswith(":"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _offered(incomplete: str, items: Iterable[Item]) -> list[Item]:
    """Those that begin so."""
    return [item for item in items if item[0].startswith(incomplete)]


def _until(text: str, signs: str) -> str:
    """The text up to the last of the signs, and with it.

    >>> _until("k40x2+v1", ",+"), _until("k4", ",+")
    ('k40x2+', '')
    """
    return text[: max(text.rfind(sign) for sign in signs) + 1]


def _recipes() -> Iterator[Item]:
    from models_zoo.networks.shipped import manifest, zoo_names

    said = {row.name: row.summary for row in manifest()}
    return ((name, said.get(name, "as the onnx package ships it")) for name in zoo_names())


def _real_devices() -> list[str]:
    """Cores and GPUs, as the system lists them."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    gpus = sum(path.name.removeprefix("nvidia").isdigit() for path in Path("/dev").glob("nvidia*"))
    return [*(f"cpu:{core}" for core in cores), *(f"cuda:{gpu}" for gpu in range(gpus))]

"""Shell completion: the names that the Tab key offers, read from small tables, which takes little time."""

import io
import os
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

COMPLETION = "_GNNPLACE_COMPLETE"
"""Environment variable that requests completions; its value names the shell."""

Item = tuple[str, str]


def planners(incomplete: str) -> list[Item]:
    """Names of planners, also after other names and a comma."""
    from gnnplace.planners.catalog import PLANNERS

    before = _until(incomplete, ",")
    return _matching(incomplete, ((before + name, entry.description) for name, entry in PLANNERS.items()))


def device_sets(incomplete: str) -> list[Item]:
    """Presets, joined by `+`, or devices of this machine, joined by `,`."""
    before = _until(incomplete, ",+")
    here = [(name, "of this machine") for name in _real_devices() if name not in incomplete.split(",")]
    if before.endswith(","):
        known = here
    else:
        from gnnplace.devices.presets import CPUS, GPUS

        known = [(name, gpu.source) for name, gpu in GPUS.items()] + [(name, cpu.source) for name, cpu in CPUS.items()]
        if not before:
            known = [("auto", "every core and GPU of this machine, and sets of cores"), *here, *known]
    return _matching(incomplete, ((before + name, meaning) for name, meaning in known))


def models(incomplete: str) -> list[Item]:
    """`zoo:NAME` and `record:NAME`; nothing if the text may be a file, so that the shell offers files."""
    if incomplete.startswith("r"):
        from models_zoo.records.names import record_names

        return _matching(incomplete, ((f"record:{name}", "best known placement") for name in record_names()))
    if not incomplete.startswith("z"):
        return []
    return _matching(incomplete, ((f"zoo:{name}", meaning) for name, meaning in _recipes()))


def policies(incomplete: str) -> list[Item]:
    """Names of policies; nothing if the text may be a file, so that the shell offers files."""
    from gnnplace.policy import POLICIES

    return _matching(incomplete, POLICIES.items())


def recipes(incomplete: str) -> list[Item]:
    """Names of the zoo's recipes."""
    return _matching(incomplete, _recipes())


def suites(incomplete: str) -> list[Item]:
    """Names of the bench's suites."""
    from gnnplace.bench.suites import SUITES

    return _matching(incomplete, ((name, suite.description) for name, suite in SUITES.items()))


@contextmanager
def whole_words(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Joins the words that bash split at colons, and prints only the part of each name after the last colon.

    For `zoo`, `:`, `nmt` the block completes `zoo:nmt`, and bash receives `nmt_2`. Other shells do not split at colons.
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
    """Joins the words around colons.

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


def _matching(incomplete: str, items: Iterable[Item]) -> list[Item]:
    return [item for item in items if item[0].startswith(incomplete)]


def _until(text: str, signs: str) -> str:
    """The text up to and including the last of the signs.

    >>> _until("k40x2+v1", ",+"), _until("k4", ",+")
    ('k40x2+', '')
    """
    return text[: max(text.rfind(sign) for sign in signs) + 1]


def _recipes() -> Iterator[Item]:
    from models_zoo.networks.shipped import manifest, zoo_names

    summaries = {row.name: row.summary for row in manifest()}
    return ((name, summaries.get(name, "as the onnx package ships it")) for name in zoo_names())


def _real_devices() -> list[str]:
    """Names of cores and GPUs; `devices.detect` would load numerical libraries."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    gpus = sum(path.name.removeprefix("nvidia").isdigit() for path in Path("/dev").glob("nvidia*"))
    return [*(f"cpu:{core}" for core in cores), *(f"cuda:{gpu}" for gpu in range(gpus))]

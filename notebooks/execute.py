"""Executes the notebooks and saves their outputs, with an image for every figure.

    python notebooks/execute.py                 # all of them
    python notebooks/execute.py 03_revisit      # notebooks with this prefix

Figures are saved twice: as Plotly's JSON, which Jupyter and VS Code draw, and as an image for pages that only display notebooks.
kaleido makes the images and needs Chrome or Chromium; animations become animated PNG files.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

__all__ = ["FIGURE", "FOLDER", "IMAGE", "execute", "notebooks"]

FOLDER = Path(__file__).parent
FIGURE, IMAGE = "application/vnd.plotly.v1+json", "image/png"
_WIDTH, _SCALE = 1000, 1.5
_FRAME_MS, _LAST_FRAME_MS = 450, 4000
_COLOURS, _COLOURS_MOVING = 128, 32


def notebooks() -> list[Path]:
    """Paths of all notebooks, in reading order."""
    return sorted(FOLDER.glob("[0-9]*.ipynb"))


def execute(path: Path, home: Path, scratch: Path) -> Any:
    """Executes a notebook, however long it takes; returns it with new outputs.

    Args:
        path: the notebook, which is not changed.
        home: the working directory of its code, with `results/`, `charts.py` and `films.py`.
        scratch: an empty folder for caches, so that no earlier measurement is known.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=None,
        record_timing=False,
        resources={"metadata": {"path": str(home)}},
    )
    client.execute(env=_environment(scratch))
    return notebook


def _environment(scratch: Path) -> Mapping[str, str]:
    """Environment of the kernel: the code of this repository and no user configuration."""
    root = str(FOLDER.parent)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "PLOTLY_RENDERER": "plotly_mimetype",
        "GNNPLACE_CACHE": str(scratch / "cache"),
        "IPYTHONDIR": str(scratch / "ipython"),
    }


def _add_images(notebook: Any) -> None:
    """Adds an image to every figure."""
    from plotly.graph_objects import Figure

    bundles = [
        output.data for cell in notebook.cells for output in cell.get("outputs", []) if FIGURE in output.get("data", {})
    ]
    figures = [Figure(bundle[FIGURE], skip_invalid=True) for bundle in bundles]
    frames = [_frames(figure) for figure in figures]
    flat = [(frame, _SCALE if len(several) == 1 else 1.0) for several in frames for frame in several]
    images = iter(_images(*zip(*flat, strict=True)) if flat else [])
    for bundle, several in zip(bundles, frames, strict=True):
        bundle[IMAGE] = base64.b64encode(_joined([next(images) for _ in several])).decode("ascii")


def _frames(figure: Any) -> list[Any]:
    """The frames of an animation as figures without buttons; a still figure is its only frame."""
    from plotly.graph_objects import Figure

    if not figure.frames:
        return [figure]
    stills = []
    for frame in figure.frames:
        still = Figure(figure.data, figure.layout)
        for place, trace in zip(frame.traces, frame.data, strict=True):
            still.data[place].update(trace.to_plotly_json(), overwrite=True)
        still.update_layout(frame.layout)
        still.layout.sliders = still.layout.updatemenus = ()
        still.update_layout(paper_bgcolor="white", plot_bgcolor="white", height=figure.layout.height - 90)
        stills.append(still)
    return stills


def _images(figures: Sequence[Any], scales: Sequence[float]) -> list[bytes]:
    from plotly.io import write_images

    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.png" for number in range(len(figures))]
        heights = [figure.layout.height for figure in figures]
        write_images(fig=list(figures), file=files, width=_WIDTH, height=heights, scale=list(scales))
        return [file.read_bytes() for file in files]


def _joined(images: Sequence[bytes]) -> bytes:
    """One image with few colours; several images become an animation."""
    from PIL import Image

    pictures = [Image.open(BytesIO(image)) for image in images]
    if len(pictures) > 1:
        palette = (
            pictures[len(pictures) // 2].convert("RGB").quantize(_COLOURS_MOVING, method=Image.Quantize.MAXCOVERAGE)
        )
        few = [picture.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    else:
        few = [pictures[0].convert("RGBA").quantize(_COLOURS, method=Image.Quantize.FASTOCTREE)]
    file = BytesIO()
    moving = {
        "save_all": True, "append_images": few[1:], "loop": 0,
        "duration": [_FRAME_MS] * (len(few) - 1) + [_LAST_FRAME_MS],
    }  # fmt: skip
    few[0].save(file, "PNG", optimize=True, **(moving if len(few) > 1 else {}))
    return file.getvalue()


def main(names: Sequence[str]) -> None:
    """Executes and saves the notebooks whose names begin with one of `names`, or all."""
    for path in notebooks():
        if names and not path.name.startswith(tuple(names)):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            begin_s = time.perf_counter()
            notebook = execute(path, FOLDER, Path(scratch))
            seconds = time.perf_counter() - begin_s
        _add_images(notebook)
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        nbformat.write(notebook, path)
        print(f"{path.name}: {seconds:.0f} s, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])

"""From op groups and placements of them to parts that a runner takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.executors.dataflow import RunnerPart
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.external_data import with_external_weights
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import Segment, segments
from gnnplace.onnx_io.split import ModelCutter

__all__ = ["GroupedModel", "PartMaker", "group_order", "model_segments"]

_MAX_PARTS = 4096  # some kilobytes each, as they hold no weights

"""Speech recognition: convolutions, then bidirectional recurrent layers, each direction one `Scan` over the frames."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models_zoo.networks.control_flow.graph_writer import GraphWriter, typed
from models_zoo.networks.recipe import OnnxNetwork, Recipe, StageRule

_OPSET = 18
_CLIP = 20.0
_FREQUENCIES = 161
_FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True)
class Settings:
    """Amodei et al. (Deep Speech 2, 2016), section 3: the network of 9 layers, 2 convolutions and 7 recurrent.

    Frames are 10 ms apart; four seconds are taken. Departure: no batch norm. Dropout is not used there either.
    """

    layers: int = 7
    hidden: int = 1760
    channels: int = 32
    batch: int = 16
    frames: int = 400
    characters: int = 29


class Direction(nn.Module):
    """`x [T, B, I]` to `[T, B, H]`: clipped-ReLU recurrence from the first frame on, or from the last one."""

    def __init__(self, inputs: int, hidden: int, reverse: bool) -> None:
        super().__init__()
        self.reverse = reverse
        self.input = nn.Linear(inputs, hidden)
        self.recurrence = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The states after every frame; what the input gives is computed for all frames at once."""
        given = self.input(x).unbind(0)
        state = torch.zeros(x.shape[1], self.recurrence.in_features)
        states = []
        for frame in reversed(given) if self.reverse else given:
            state = (frame + self.recurrence(state)).clamp(0.0, _CLIP)
            states.append(state)
        return torch.stack(states[::-1] if self.reverse else states)


class Layer(nn.Module):
    """Both directions, added."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forwards = Direction(inputs, hidden, reverse=False)
        self.backwards = Direction(inputs, hidden, reverse=True)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of the states."""
        found: Tensor = self.forwards(x) + self.backwards(x)
        return found


class SpeechRecogniser(nn.Module):
    """`spectrogram [B, 1, F, T]` to `logits [T / 2, B, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        channels, hidden = settings.channels, settings.hidden
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, channels, (41, 11), (2, 2), padding=(20, 5)),
            nn.Hardtanh(0.0, _CLIP),
            nn.Conv2d(channels, channels, (21, 11), (2, 1), padding=(10, 5)),
            nn.Hardtanh(0.0, _CLIP),
        )
        features = channels * ((_FREQUENCIES + 3) // 4)
        self.layers = nn.ModuleList(
            Layer(features if index == 0 else hidden, hidden) for index in range(settings.layers)
        )
        self.softmax = nn.Linear(hidden, settings.characters)

    def forward(self, spectrogram: Tensor) -> Tensor:
        """Logits of the characters at every second frame."""
        x = self.convolutions(spectrogram).flatten(1, 2).permute(2, 0, 1)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.softmax(x)
        return logits


def _make(settings: Settings) -> OnnxNetwork:
    module = SpeechRecogniser(settings).eval()
    spectrogram = torch.randn(settings.batch, 1, _FREQUENCIES, settings.frames)

    def reference(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        with torch.no_grad():
            return [module(torch.from_numpy(inputs["spectrogram"])).numpy()]

    return OnnxNetwork(_model(module, settings), {"spectrogram": spectrogram.numpy()}, reference)


def _model(module: SpeechRecogniser, settings: Settings) -> ir.Model:
    writer = GraphWriter()
    spectrogram = writer.input("spectrogram", _FLOAT, (settings.batch, 1, _FREQUENCIES, settings.frames))
    x = spectrogram
    for index, layer in enumerate(module.convolutions):
        at = f"convolutions.{index}"
        if isinstance(layer, nn.Conv2d):
            pads = (*layer.padding, *layer.padding)
            x = writer.op("Conv", x, *writer.parameters(layer, at), at=at, strides=layer.stride, pads=pads)
        else:
            x = _clipped(writer, x, at)
    x = writer.op("Transpose", x, at="frames", perm=(3, 0, 1, 2))
    x = writer.op("Reshape", x, writer.constant((0, 0, -1)), at="frames")
    for index, layer in enumerate(module.layers):
        assert isinstance(layer, Layer)
        at = f"layers.{index}"
        both = [
            _direction(writer, direction, x, f"{at}.{name}", settings) for name, direction in layer.named_children()
        ]
        x = writer.op("Add", *both, at=at)
    logits = _linear(writer, module.softmax, x, "softmax")
    logits.name = "logits"
    typed(logits, _FLOAT, ((settings.frames + 1) // 2, settings.batch, settings.characters))
    return writer.model([spectrogram], [logits], _OPSET)


def _direction(writer: GraphWriter, direction: nn.Module, x: ir.Value, at: str, settings: Settings) -> ir.Value:
    """One `Scan`; the reverse one reads the frames from the last on and stacks the states that way as well."""
    assert isinstance(direction, Direction)
    given = _linear(writer, direction.input, x, f"{at}.input")
    weight = _transposed(writer, direction.recurrence, f"{at}.recurrence")
    body = writer.body()
    shape = (settings.batch, settings.hidden)
    state, frame = (body.input(f"{at}/{name}", _FLOAT, shape) for name in ("state", "frame"))
    following = typed(_clipped(body, body.op("Add", frame, body.op("MatMul", state, weight)), ""), _FLOAT, shape)
    stacked = typed(body.op("Identity", following), _FLOAT, shape)
    zeros = writer.weight("zeros", torch.zeros(shape))
    backwards = (int(direction.reverse),)
    _, states = writer.ops(
        "Scan", zeros, given, at=at, outputs=2, body=body.graph("frame", [state, frame], [following, stacked]),
        num_scan_inputs=1, scan_input_directions=backwards, scan_output_directions=backwards,
    )  # fmt: skip
    return states


def _linear(writer: GraphWriter, layer: nn.Linear, x: ir.Value, at: str) -> ir.Value:
    product = writer.op("MatMul", x, _transposed(writer, layer, at), at=at)
    return writer.op("Add", product, writer.weight(f"{at}.bias", layer.bias), at=at)


def _transposed(writer: GraphWriter, layer: nn.Linear, at: str) -> ir.Value:
    return writer.weight(f"{at}.weight", layer.weight.T)


def _clipped(writer: GraphWriter, x: ir.Value, at: str) -> ir.Value:
    return writer.op("Clip", x, *(writer.constant(limit, torch.float32) for limit in (0.0, _CLIP)), at=at)


def _recipe(layers: int, summary: str) -> Recipe:
    return Recipe(
        name=f"deep_speech_{layers}",
        summary=summary,
        make=_make,
        settings=Settings(layers=layers),
        small=Settings(layers=layers, hidden=16, channels=2, batch=2, frames=12),
        source="Amodei et al. 2016 (Deep Speech 2), section 3",
        stages=StageRule(
            ((r"convolutions\.", 0), (r"layers\.(\d+)\.", r"\1"), (r"softmax\.", "last")),
        ),
    )


RECIPES = (
    _recipe(3, "speech recogniser of 3 bidirectional recurrent layers"),
    _recipe(7, "speech recogniser of 7 bidirectional recurrent layers"),
)

"""Translation word by word: an encoder, a greedy decoder as `Loop` that stops when all sentences end, and their scores.

The body reads annotations and weights from outside. What it chose is scored once more after the loop, all words at
once, as rescoring does; that reads the same output weights as the loop.
"""

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
_START, _END = 0, 1
_FLOAT, _INT64, _BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL


@dataclass(frozen=True)
class Settings:
    """Bahdanau et al. (2015), appendix A and B: hidden units, embedding, vocabulary, batch, longest sentence.

    Departures: attention by Luong et al. (2015), the general score and its output layer; greedy search, no beam.
    """

    hidden: int = 1000
    embedding: int = 620
    vocabulary: int = 30000
    batch: int = 80
    words: int = 50
    limit: int = 50
    """Words that the decoder writes at most."""


class Translator(nn.Module):
    """`source [S, B]` to `words [T, B]` and `log_probability [T, B]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        hidden = settings.hidden
        self.limit = settings.limit
        self.source = nn.Embedding(settings.vocabulary, settings.embedding)
        self.encoder = nn.GRU(settings.embedding, hidden, bidirectional=True)
        self.first = nn.Linear(hidden, hidden)
        self.keys = nn.Linear(2 * hidden, hidden, bias=False)
        self.target = nn.Embedding(settings.vocabulary, settings.embedding)
        self.cell = nn.GRUCell(settings.embedding, hidden)
        self.mixture = nn.Linear(3 * hidden, hidden)
        self.output = nn.Linear(hidden, settings.vocabulary)
        nn.init.normal_(self.output.weight)  # far-apart logits: the best word is not a matter of rounding

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen words and their log-probabilities."""
        annotations, last = self.encoder(self.source(source))
        annotations = annotations.transpose(0, 1)
        keys = self.keys(annotations)
        state = torch.tanh(self.first(last[1]))
        word = torch.full(source.shape[1:], _START)
        ended = torch.zeros_like(word, dtype=torch.bool)
        words: list[Tensor] = []
        tops: list[Tensor] = []
        while len(words) < self.limit and not ended.all():
            state = self.cell(self.target(word), state)
            attention = (keys @ state.unsqueeze(2)).softmax(1)
            context = (attention.transpose(1, 2) @ annotations).squeeze(1)
            top = torch.tanh(self.mixture(torch.cat((context, state), 1)))
            word = self.output(top).argmax(1)
            ended = ended | (word == _END)
            words.append(word)
            tops.append(top)
        chosen = torch.stack(words)
        scores = self.output(torch.stack(tops)).log_softmax(-1)
        return chosen, scores.gather(2, chosen.unsqueeze(2)).squeeze(2)


def _make(settings: Settings) -> OnnxNetwork:
    module = Translator(settings).eval()
    source = torch.randint(2, settings.vocabulary, (settings.words, settings.batch))

    def reference(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        with torch.no_grad():
            return [value.numpy() for value in module(torch.from_numpy(inputs["source"]))]

    return OnnxNetwork(_model(module, settings), {"source": source.numpy()}, reference)


def _model(module: Translator, settings: Settings) -> ir.Model:
    writer = GraphWriter()
    source = writer.input("source", _INT64, (settings.words, settings.batch))
    annotations, state = _encoder(writer, module, source)
    (table,) = writer.parameters(module.keys, "keys")
    keys = writer.op("MatMul", annotations, writer.op("Transpose", table, at="keys", perm=(1, 0)), at="keys")
    shape = writer.op("Shape", state, at="decoder", start=0, end=1)
    word = writer.op("Expand", writer.constant(_START), shape, at="decoder")
    ended = writer.op("Cast", word, at="decoder", to=_BOOL.value)
    body = _body(writer.body(), module, settings, keys, annotations)
    *_, words, tops = writer.ops(
        "Loop", writer.constant(settings.limit), writer.constant(1, torch.bool), word, ended, state,
        at="decoder", outputs=5, body=body,
    )  # fmt: skip
    words.name = "words"
    table, bias = writer.parameters(module.output, "output")
    logits = writer.op("MatMul", tops, writer.op("Transpose", table, at="score", perm=(1, 0)), at="score")
    scores = writer.op("LogSoftmax", writer.op("Add", logits, bias, at="score"), at="score", axis=2)
    axis = writer.constant((2,))
    chosen = writer.op("Unsqueeze", words, axis, at="score")
    best = writer.op("Squeeze", writer.op("GatherElements", scores, chosen, at="score", axis=2), axis, at="score")
    best.name = "log_probability"
    outputs = [typed(words, _INT64, ("length", settings.batch)), typed(best, _FLOAT, ("length", settings.batch))]
    return writer.model([source], outputs, _OPSET)


def _encoder(writer: GraphWriter, module: Translator, source: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Annotations `[B, S, 2 H]`, and the decoder's first state `[B, H]` from the backward direction's last."""
    (table,) = writer.parameters(module.source, "source")
    embedded = writer.op("Gather", table, source, at="source")
    named = {name.removesuffix("_reverse"): [] for name, _ in module.encoder.named_parameters()}  # type: ignore[var-annotated]
    for name, value in module.encoder.named_parameters():
        reset, update, new = value.detach().chunk(3)
        named[name.removesuffix("_reverse")].append(torch.cat((update, reset, new)))  # ONNX has another order of gates
    weights = [
        writer.weight(f"encoder.{name}", torch.stack(named[f"{name}_l0"])) for name in ("weight_ih", "weight_hh")
    ]
    bias = torch.stack([torch.cat(pair) for pair in zip(named["bias_ih_l0"], named["bias_hh_l0"], strict=True)])
    found, last = writer.ops(
        "GRU", embedded, *weights, writer.weight("encoder.bias", bias), at="encoder", outputs=2,
        direction="bidirectional", hidden_size=module.encoder.hidden_size, linear_before_reset=1,
    )  # fmt: skip
    merged = writer.op("Transpose", found, at="encoder", perm=(2, 0, 1, 3))
    annotations = writer.op("Reshape", merged, writer.constant((0, 0, -1)), at="encoder")
    backward = writer.op("Gather", last, writer.constant(1), at="first")
    return annotations, writer.op("Tanh", writer.linear(backward, module.first, "first"), at="first")


def _body(body: GraphWriter, module: Translator, settings: Settings, keys: ir.Value, annotations: ir.Value) -> ir.Graph:
    """One word: condition, word, ended, state; then word and top to stack."""
    number, going = body.input("number", _INT64, ()), body.input("going", _BOOL, ())
    word, ended = body.input("word", _INT64, (settings.batch,)), body.input("ended", _BOOL, (settings.batch,))
    state = body.input("state", _FLOAT, (settings.batch, settings.hidden))
    (table,) = body.parameters(module.target, "target")
    following = _cell(body, module.cell, body.op("Gather", table, word), state)
    axis = body.constant((2,))
    attention = body.op("Softmax", body.op("MatMul", keys, body.op("Unsqueeze", following, axis)), axis=1)
    context = body.op("MatMul", body.op("Transpose", attention, perm=(0, 2, 1)), annotations)
    pair = body.op("Concat", body.op("Squeeze", context, body.constant((1,))), following, axis=1)
    top = body.op("Tanh", body.linear(pair, module.mixture, "mixture"))
    best = body.op("ArgMax", body.linear(top, module.output, "output"), axis=1, keepdims=0)
    done = body.op("Or", ended, body.op("Equal", best, body.constant(_END)))
    # ONNX has no "all" of bools: the smallest of 0 and 1
    smallest = body.op("ReduceMin", body.op("Cast", done, to=_INT64.value), keepdims=0)
    more = body.op("Equal", smallest, body.constant(0))
    outputs = [
        typed(more, _BOOL, ()),
        typed(best, _INT64, (settings.batch,)),
        typed(done, _BOOL, (settings.batch,)),
        typed(following, _FLOAT, (settings.batch, settings.hidden)),
        typed(body.op("Identity", best), _INT64, (settings.batch,)),
        typed(top, _FLOAT, (settings.batch, settings.hidden)),
    ]
    return body.graph("next_word", [number, going, word, ended, state], outputs)


def _cell(body: GraphWriter, cell: nn.GRUCell, x: ir.Value, state: ir.Value) -> ir.Value:
    """The gated recurrent unit as torch computes it."""
    weight_ih, weight_hh, bias_ih, bias_hh = body.parameters(cell, "cell")
    given = body.ops("Split", body.op("Gemm", x, weight_ih, bias_ih, transB=1), outputs=3, axis=1, num_outputs=3)
    kept = body.ops("Split", body.op("Gemm", state, weight_hh, bias_hh, transB=1), outputs=3, axis=1, num_outputs=3)
    reset, update = (body.op("Sigmoid", body.op("Add", given[gate], kept[gate])) for gate in (0, 1))
    new = body.op("Tanh", body.op("Add", given[2], body.op("Mul", reset, kept[2])))
    return body.op("Add", new, body.op("Mul", update, body.op("Sub", state, new)))


RECIPES = (
    Recipe(
        name="greedy_decoder",
        summary="translation with attention, decoded word by word in a loop",
        make=_make,
        settings=Settings(),
        small=Settings(hidden=16, embedding=8, vocabulary=50, batch=2, words=5, limit=6),
        source="Bahdanau et al. 2015, appendices A and B; Luong et al. 2015, section 3.1",
        stages=StageRule(((r"(source|encoder)\.", 0), (r"(first|keys|target|cell|mixture|decoder|output)\.", 1))),
    ),
)

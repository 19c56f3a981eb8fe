"""FLOPs and moved bytes of one node, computed by hand."""

import onnx
import onnx_ir as ir
import pytest

from gnnplace.onnx_io.op_costs.node_cost import has_known_cost

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'

# inputs, initialisers, node (it writes y), FLOPs, moved bytes
COSTS = {
    "a convolution": (
        "float[2, 8, 10, 10] x, float[16, 4, 3, 3] w, float[16] b", "", "y = Conv<group = 2, pads = [1, 1, 1, 1]>(x, w, b)",
        2 * 16 * 100 * (2 * 4 * 9 + 1), 4 * (1600 + 576 + 16 + 3200),
    ),
    "a strided convolution": (
        "float[1, 3, 224, 224] x, float[64, 3, 7, 7] w", "", "y = Conv<strides = [2, 2], pads = [3, 3, 3, 3]>(x, w)",
        2 * 64 * 112 * 112 * 147, 4 * (3 * 224 * 224 + 64 * 147 + 64 * 112 * 112),
    ),
    "a transposed convolution": (
        "float[1, 4, 5, 5] x, float[4, 6, 2, 2] w", "", "y = ConvTranspose<strides = [2, 2]>(x, w)",
        2 * 100 * 6 * 4, 4 * (100 + 96 + 600),
    ),
    "a quantised convolution": (
        "uint8[1, 2, 4, 4] x, int8[3, 2, 1, 1] w, int32[3] b", "float s = {1}, uint8 z = {0}, int8 zw = {0}",
        "y = QLinearConv(x, s, z, w, s, zw, s, z, b)", 48 * (2 * 2 + 1), 32 + 6 + 12 + 48 + 3 * 4 + 3,
    ),
    "an integer product": (
        "uint8[3, 5] x, uint8[5, 7] w", "", "y = MatMulInteger(x, w)", 2 * 3 * 5 * 7, 15 + 35 + 4 * 21,
    ),
    "a batched matrix product": (
        "float[6, 3, 5] x, float[5, 7] w", "", "y = MatMul(x, w)", 2 * 6 * 3 * 5 * 7, 4 * (90 + 35 + 126),
    ),
    "a product of vectors": ("float[5] x, float[5] w", "", "y = MatMul(x, w)", 10, 4 * 11),
    "a gemm": (
        "float[5, 3] x, float[7, 5] w, float[7] b", "", "y = Gemm<transA = 1, transB = 1>(x, w, b)",
        2 * 3 * 5 * 7 + 21, 4 * (15 + 35 + 7 + 21),
    ),
    "an einsum": ("float[2, 3, 4] x, float[2, 5, 4] w", "", 'y = Einsum<equation = "bij,bkj->bik">(x, w)', 240, 4 * 94),
    "an einsum with an ellipsis": (
        "float[2, 3, 4] x, float[4, 5] w", "", 'y = Einsum<equation = "...j,jk->...k">(x, w)', 240, 4 * (24 + 20 + 30),
    ),
    "an outer einsum": ("float[3] x, float[4] w", "", 'y = Einsum<equation = "i,j->ij">(x, w)', 12, 4 * 19),
    "a transposing einsum": ("float[3, 4] x", "", 'y = Einsum<equation = "ij->ji">(x)', 0, 4 * 24),
    "an lstm": (  # [steps, batch, width], 2 directions, hidden 6: products, biases, sums, activations, new state
        "float[5, 3, 4] x, float[2, 24, 4] w, float[2, 24, 6] r, float[2, 48] b", "",
        "y = LSTM<hidden_size = 6, direction = \"bidirectional\">(x, w, r, b)",
        2 * 15 * 6 * (8 * (4 + 6) + 8 + 22), 4 * (60 + 192 + 288 + 96 + 180),
    ),
    "a gru": (
        "float[5, 3, 4] x, float[1, 18, 4] w, float[1, 18, 6] r", "", "y = GRU<hidden_size = 6>(x, w, r)",
        15 * 6 * (6 * (4 + 6) + 17), 4 * (60 + 72 + 108 + 90),
    ),
    "an rnn": (
        "float[5, 3, 4] x, float[1, 6, 4] w, float[1, 6, 6] r", "", "y = RNN<hidden_size = 6>(x, w, r)",
        15 * 6 * (2 * (4 + 6) + 2), 4 * (60 + 24 + 36 + 90),
    ),
    "an addition that broadcasts": ("float[2, 3] x, float[3] w", "", "y = Add(x, w)", 6, 4 * (6 + 3 + 6)),
    "a sigmoid in half precision": ("float16[10] x", "", "y = Sigmoid(x)", 40, 40),
    "a sum of three": ("float[4] x, float[4] w, float[4] z", "", "y = Sum(x, w, z)", 8, 64),
    "a gelu": ("float[4] x", "", "y = Gelu(x)", 20, 32),
    "a softmax": ("float[2, 5] x", "", "y = Softmax(x)", 50, 80),
    "a layer normalisation": (
        "float[2, 5] x, float[5] s, float[5] b", "", "y = LayerNormalization(x, s, b)", 80, 4 * 30,
    ),
    "a batch normalisation": (
        "float[2, 5] x, float[5] s", "", "y = BatchNormalization(x, s, s, s, s)", 20, 4 * (10 + 4 * 5 + 10),
    ),
    "a batch normalisation in training": (
        "float[2, 5] x, float[5] s", "", "y, m, v = BatchNormalization<training_mode = 1>(x, s, s, s, s)", 80,
        4 * (10 + 4 * 5 + 10 + 2 * 5),
    ),
    "a reduction": ("float[2, 5] x", "int64[1] a = {1}", "y = ReduceMean(x, a)", 10, 4 * 12 + 8),
    "a pooling": ("float[1, 2, 8, 8] x", "", "y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)", 128, 4 * 160),
    "a global pooling": ("float[1, 2, 8, 8] x", "", "y = GlobalAveragePool(x)", 128, 4 * 130),
    "a normalisation over channels": ("float[1, 2, 2, 2] x", "", "y = LRN<size = 5>(x)", 8 * 14, 64),
    "a nearest resizing": (
        "float[1, 1, 2, 2] x", "float[4] s = {1, 1, 2, 2}", "y = Resize(x, , s)", 0, 4 * (4 + 4 + 16),
    ),
    "a linear resizing": (
        "float[1, 1, 2, 2] x", "float[4] s = {1, 1, 2, 2}", 'y = Resize<mode = "linear">(x, , s)', 16 * 8, 4 * 24,
    ),
    "a non-maximum suppression": (
        "float[1, 8, 4] x, float[1, 2, 8] s", "int64 k = {3}", "y = NonMaxSuppression(x, s, k)", 2 * (8 * 3 + 12 * 3 * 8), 4 * 48 + 8 + 8 * 30,
    ),
    "a top-k": ("float[2, 16] x", "int64[1] k = {4}", "y, i = TopK(x, k)", 32 * 2, 4 * 32 + 8 + (4 + 8) * 8),
    "a dropout at inference": ("float[4] x", "", "y = Dropout(x)", 0, 0),
    "a dropout with an empty mode": ("float[4] x", "float r = {0.5}, bool[0] t = {}", "y = Dropout(x, r, t)", 0, 0),
    "a dropout in training": ("float[4] x", "float r = {0.5}, bool t = {1}", "y = Dropout(x, r, t)", 12, 4 * 8 + 5),
    "a reshape": ("float[2, 6] x", "int64[2] s = {3, 4}", "y = Reshape(x, s)", 0, 0),
    "a flattening": ("float[2, 6] x", "", "y = Flatten(x)", 0, 0),
    "an identity": ("float[2, 6] x", "", "y = Identity(x)", 0, 0),
    "a new axis": ("float[2, 6] x", "int64[1] a = {0}", "y = Unsqueeze(x, a)", 0, 0),
    "a shape": ("float[2, 6] x", "", "y = Shape(x)", 0, 0),
    "an embedding": (  # reads 3 rows of 1000, and the indices
        "int64[3] x, float[1000, 8] w", "", "y = Gather(w, x)", 0, 2 * 4 * 24 + 24,
    ),
    "a slice": ("float[100, 2] x", "int64[1] s = {0}, int64[1] e = {5}", "y = Slice(x, s, e)", 0, 2 * 4 * 10 + 16),
    "a transposition": ("float[3, 4] x", "", "y = Transpose(x)", 0, 96),
    "a concatenation": ("float[3, 4] x, float[1, 4] w", "", "y = Concat<axis = 0>(x, w)", 0, 2 * 64),
    "a scatter": (
        "float[10, 2] x, int64[1, 1] i, float[1, 2] u", "", "y = ScatterND(x, i, u)", 0, 80 + 8 + 8 + 80 + 8,
    ),
    "a quantisation": ("float[4] x", "float s = {2}, uint8 z = {0}", "y = QuantizeLinear(x, s, z)", 20, 16 + 5 + 4),
    "a cast": ("float[4] x", "", "y = Cast<to = 10>(x)", 4, 24),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTS)
def test_flops_and_moved_bytes_are_those_computed_by_hand_for(name: str, read_text) -> None:
    inputs, initializers, node, flops, moved = COSTS[name]
    graph = read_text(HEAD + f"g ({inputs}) => (y) <{initializers}> {{ {node} }}").graph
    assert graph.flops.tolist() == [flops]
    assert graph.bytes_accessed.tolist() == [moved]


@pytest.mark.parametrize(
    ("shapes", "attributes", "flops"),
    [
        # 4-D: batch 2, 4 heads, 3 queries, 5 keys of width 8 and values of width 6
        ("float[2, 4, 3, 8] q, float[2, 4, 5, 8] k, float[2, 4, 5, 6] v", "", 2 * 4 * 3 * 5 * (16 + 12 + 1 + 5)),
        # packed heads, grouped keys: 4 query heads of width 8, 2 key heads
        (
            "float[2, 3, 32] q, float[2, 5, 16] k, float[2, 5, 16] v",
            "<q_num_heads = 4, kv_num_heads = 2>",
            2 * 4 * 3 * 5 * (16 + 16 + 1 + 5),
        ),
    ],
)
def test_attention_counts_scores_softmax_and_the_weighted_sum(
    read_text, shapes: str, attributes: str, flops: int
) -> None:
    text = f'<ir_version: 10, opset_import: ["": 23]>\n g ({shapes}) => (y) {{ y = Attention{attributes}(q, k, v) }}'
    assert read_text(text).graph.flops.tolist() == [flops]


def test_attention_with_a_cache_counts_past_keys(read_text) -> None:
    text = """g (float[1, 2, 1, 8] q, float[1, 2, 1, 8] k, float[1, 2, 9, 8] past) => (y, pk, pv)
        { y, pk, pv = Attention(q, k, k, , past, past) }"""
    graph = read_text('<ir_version: 10, opset_import: ["": 23]>\n' + text).graph
    assert graph.flops.tolist() == [2 * 10 * (16 + 16 + 1 + 5)]
    assert graph.tensor_bytes.tolist() == [64, 4 * 160, 4 * 160]


def test_every_operator_of_the_default_domain_has_a_cost() -> None:
    names = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    bodies = {"If", "Loop", "Scan", "SequenceMap"}
    unknown = {name for name in names - bodies if not has_known_cost(ir.node(name, []))}
    assert unknown == set()

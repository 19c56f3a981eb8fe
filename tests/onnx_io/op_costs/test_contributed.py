"""FLOPs and moved bytes of operators outside ONNX's own domain, computed by hand and compared with what they were fused from."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.api.workload import load_workload

HEAD = (
    '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1, "com.microsoft.nchwc": 1, "com.ms.internal.nhwc": 17, '
    '"ai.onnx.ml": 3]>\n'
)

# inputs, outputs, node, FLOPs, moved bytes
COSTS = {
    "a product with a transposed factor and a scale": (
        "float[5, 3] a, float[5, 7] b", "float[3, 7] y", "y = com.microsoft.FusedMatMul<transA = 1, alpha = 0.5>(a, b)",
        21 * (10 + 1), 4 * (15 + 35 + 21),
    ),
    "a product with weights of 4 bits": (  # which are unpacked, two FLOPs each
        "float[2, 32] x, uint8[4, 1, 16] w, float[4] s", "float[2, 4] y",
        "y = com.microsoft.MatMulNBits<K = 32, N = 4, bits = 4, block_size = 32>(x, w, s)",
        8 * 64 + 2 * 32 * 4, 4 * 64 + 64 + 4 * 4 + 4 * 8,
    ),
    "a product that quantises its input": (
        "float[3, 5] x, int8[5, 7] w, float s", "float[3, 7] y", "y = com.microsoft.DynamicQuantizeMatMul(x, w, s)",
        7 * 15 + 21 * (10 + 2), 60 + 35 + 4 + 84,
    ),
    "an integer product with a float result": (
        "uint8[3, 5] x, int8[5, 7] w, float s, float t", "float[3, 7] y", "y = com.microsoft.MatMulIntegerToFloat(x, w, s, t)",
        21 * (10 + 2), 15 + 35 + 8 + 84,
    ),
    "a quantised gemm": (
        "uint8[3, 5] x, float s, uint8 z, int8[7, 5] w, float sw, int8 zw, int32[7] c", "uint8[3, 7] y",
        "y = com.microsoft.QGemm<transB = 1>(x, s, z, w, sw, zw, c, s, z)",
        21 * (10 + 1 + 5), 15 + 5 + 35 + 5 + 28 + 5 + 21,
    ),
    "a convolution with a bias, a sum and an activation": (
        "float[1, 4, 5, 5] x, float[8, 4, 3, 3] w, float[8] b, float[1, 8, 5, 5] z", "float[1, 8, 5, 5] y",
        'y = com.microsoft.FusedConv<activation = "Relu", pads = [1, 1, 1, 1]>(x, w, b, z)',
        200 * (2 * 36 + 3), 4 * (100 + 288 + 8 + 200 + 200),
    ),
    "a convolution of blocks": (
        "float[1, 16, 4, 4] x, float[16, 16, 3, 3] w", "float[1, 16, 4, 4] y",
        "y = com.microsoft.nchwc.Conv<pads = [1, 1, 1, 1]>(x, w)", 256 * 2 * 144, 4 * (256 + 2304 + 256),
    ),
    "a pool with channels last": (
        "float[1, 4, 4, 3] x", "float[1, 2, 2, 3] y",
        "y = com.ms.internal.nhwc.MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)", 12 * 4, 4 * (48 + 12),
    ),
    "an attention with its projections": (
        "float[2, 3, 16] x, float[16, 48] w, float[48] b", "float[2, 3, 16] y",
        "y = com.microsoft.Attention<num_heads = 4>(x, w, b)",
        6 * 48 * (32 + 1) + 6 * 3 * 4 * (8 + 8 + 1 + 5), 4 * (96 + 768 + 48 + 96),
    ),
    "an attention with a cache": (
        "float[2, 3, 16] x, float[16, 48] w, float[48] b, float[2, 2, 4, 5, 4] p",
        "float[2, 3, 16] y, float[2, 2, 4, 8, 4] q", "y, q = com.microsoft.Attention<num_heads = 4>(x, w, b, , p)",
        6 * 48 * (32 + 1) + 6 * 8 * 4 * (8 + 8 + 1 + 5), 4 * (96 + 768 + 48 + 320 + 96 + 512),
    ),
    "an attention of other tokens": (
        "float[2, 3, 16] q, float[2, 5, 16] k, float[2, 5, 16] v", "float[2, 3, 16] y",
        "y = com.microsoft.MultiHeadAttention<num_heads = 4>(q, k, v)", 2 * 3 * 5 * 4 * (8 + 8 + 1 + 5), 4 * (96 + 160 + 160 + 96),
    ),
    "an attention of packed tokens": (
        "float[2, 3, 4, 3, 8] q", "float[2, 3, 32] y", "y = com.microsoft.MultiHeadAttention<num_heads = 4>(q)",
        2 * 3 * 3 * 4 * (16 + 16 + 1 + 5), 4 * (576 + 192),
    ),
    "an attention with shared keys and a cache": (
        "float[1, 1, 32] q, float[1, 1, 16] k, float[1, 2, 9, 8] p, int32[1] l, int32 t",
        "float[1, 1, 32] y, float[1, 2, 10, 8] pk, float[1, 2, 10, 8] pv",
        "y, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1>(q, k, k, p, p, l, t)",
        10 * 4 * (16 + 16 + 1 + 5) + 3 * 8 * (4 + 2), 4 * (32 + 16 + 16 + 144 + 144 + 2 + 32 + 160 + 160),
    ),
    "an attention with a window over packed tokens": (
        "float[1, 3, 64] q, int32[1] l, int32 t", "float[1, 3, 32] y",
        "y = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, local_window_size = 2>(q, , , , , l, t)",
        3 * 2 * 4 * (16 + 16 + 1 + 5), 4 * (192 + 2 + 96),
    ),
    "two of four experts per token": (
        "float[3, 8] x, float[3, 4] r, float[4, 16, 8] u, float[4, 8, 16] d", "float[3, 8] y",
        "y = com.microsoft.MoE<k = 2>(x, r, u, , d)", 2 * 3 * 2 * (128 + 128), 4 * (24 + 12 + 512 + 512 + 24),
    ),
    "a normalised sum with a bias": (
        "float[2, 8] x, float[2, 8] s, float[8] g, float[8] b, float[8] c", "float[2, 8] y",
        "y = com.microsoft.SkipLayerNormalization(x, s, g, b, c)", 16 * (8 + 1 + 1), 4 * (16 + 16 + 24 + 16),
    ),
    "normalised embeddings": (  # reads 6 rows of each table
        "int32[2, 3] i, int32[2, 3] j, float[1000, 8] w, float[16, 8] p, float[2, 8] s, float[8] g, float[8] b",
        "float[2, 3, 8] y, int32[2] m", "y, m = com.microsoft.EmbedLayerNormalization(i, j, w, p, s, g, b)",
        48 * (8 + 1 + 1), 24 + 24 + 3 * 192 + 192 + 8,
    ),
    "an activation with a bias": ("float[4] x, float[4] b", "float[4] y", "y = com.microsoft.FastGelu(x, b)", 40, 48),
    "a quantised sum": (
        "uint8[10] x, float s, uint8 z", "uint8[10] y", "y = com.microsoft.QLinearAdd(x, s, z, x, s, z, s, z)",
        10 * (2 + 2 + 1 + 5), 20 + 15 + 10,
    ),
    "a quantised embedding": (  # 3 of 12 rows
        "uint8[12, 16] w, int64[3] i, float[12, 1] s", "float[3, 32] y",
        "y = com.microsoft.GatherBlockQuantized<block_size = 32>(w, i, s)", 2 * 96, 24 + 4 * 96 + (192 + 48) * 96 / 192,
    ),
    "trees": (  # 5 rows visit one inner node in each of two trees
        "float[5, 3] x", "float[5, 1] y",
        "y = ai.onnx.ml.TreeEnsembleRegressor<nodes_treeids = [0, 0, 0, 1, 1, 1]>(x)", 2 * 5 * 2, 60 + 20 + 20 * 10,
    ),
    "a linear model": (
        "float[5, 3] x", "float[5, 1] y", "y = ai.onnx.ml.LinearRegressor<coefficients = [1.0, 2.0, 3.0]>(x)", 30, 60 + 20 + 12,
    ),
    "support vectors": (  # two of them
        "float[5, 3] x", "float[5, 1] y",
        "y = ai.onnx.ml.SVMRegressor<support_vectors = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], coefficients = [1.0, 2.0]>(x)",
        5 * (3 * 6 + 3 * 2 + 2 * 2), 60 + 20 + 4 * 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTS)
def test_flops_and_moved_bytes_are_those_computed_by_hand_for(name: str, read_text) -> None:
    inputs, outputs, node, flops, moved = COSTS[name]
    model = read_text(HEAD + f"g ({inputs}) => ({outputs}) {{ {node} }}")
    assert model.graph.flops.tolist() == [flops]
    assert model.graph.bytes_accessed.tolist() == [moved]
    assert not any("no cost is known" in warning for warning in model.warnings)


def test_an_integer_product_computes_with_integers(read_text) -> None:
    text = "g (uint8[3, 5] x, int8[5, 7] w, float s, float t) => (float[3, 7] y) { y = com.microsoft.MatMulIntegerToFloat(x, w, s, t) }"
    assert read_text(HEAD + text).graph.dtypes == ("uint8",)


LAYER = """g (float[2, 6, 32] x, float[2, 16, 8, 8] i) => (float[2, 6, 32] y, float[2, 32, 8, 8] j)
    <float[32, 32] q, float[32, 32] k, float[32, 32] v, float[32, 128] u, float[128, 32] d, float[128] b, float[32] c,
     float[32] one, float scale = {0.35}, int64[4] heads = {2, 6, 4, 8}, int64[3] flat = {2, 6, 32}, float[32, 16, 3, 3] w>
    { a = MatMul(x, q)  a4 = Reshape(a, heads)  at = Transpose<perm = [0, 2, 1, 3]>(a4)
      e = MatMul(x, k)  e4 = Reshape(e, heads)  et = Transpose<perm = [0, 2, 3, 1]>(e4)
      o = MatMul(x, v)  o4 = Reshape(o, heads)  ot = Transpose<perm = [0, 2, 1, 3]>(o4)
      s = MatMul(at, et)  t = Mul(s, scale)  p = Softmax(t)  m = MatMul(p, ot)
      mt = Transpose<perm = [0, 2, 1, 3]>(m)  mf = Reshape(mt, flat)
      r = Add(mf, x)  n = LayerNormalization(r, one, c)
      f = MatMul(n, u)  g1 = Add(f, b)  h = Relu(g1)  l = MatMul(h, d)  z = Add(l, n)  y = LayerNormalization(z, one, c)
      conv = Conv<pads = [1, 1, 1, 1]>(i, w)  j = Relu(conv) }"""


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_an_optimised_model_costs_about_what_it_was_fused_from(level: str, tmp_path: Path) -> None:
    plain, optimised = tmp_path / "plain.onnx", tmp_path / "optimised.onnx"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + LAYER)
    rng, filled = np.random.default_rng(0), {tensor.name for tensor in model.graph.initializer}
    for info in list(model.graph.value_info):
        if info.name not in filled:
            shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            model.graph.initializer.append(
                onnx.numpy_helper.from_array(rng.random(shape).astype(np.float32), info.name)
            )
    onnx.save(model, plain)
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(optimised)
    options.log_severity_level = 4
    ort.InferenceSession(plain, options)
    before, after = (load_workload(path).graph for path in (plain, optimised))
    assert any("::" in op_type for op_type in after.op_types)
    assert after.flops.sum() == pytest.approx(before.flops.sum(), rel=0.02)
    assert 0.5 < after.bytes_accessed.sum() / before.bytes_accessed.sum() < 1

"""Signatures: equal for what costs the same, different for what does not, whatever the names."""


def test_a_signature_states_domain_type_shapes_dtypes_and_sorted_attributes(read_text) -> None:
    text = """g (float[B, 3, 8, 8] x, float16[2] h) => (float[B, 4, 8, 8] y, float[2] z, float[2] c)
        { w = RandomNormal<shape = [4, 3, 3, 3]>() y = Conv<pads = [1, 1, 1, 1], group = 1>(x, w)
          z = Cast<to = 1>(h)  d = Constant<value = float {1}>()  c = Clip(z, , d) }"""
    graph = read_text(text, B=2).graph
    assert graph.signatures[1:] == (
        "ai.onnx::Conv(float32[2,3,8,8],float32[4,3,3,3])->(float32[2,4,8,8]){group=1,pads=[1,1,1,1]}",
        "ai.onnx::Cast(float16[2])->(float32[2]){to=1}",
        "ai.onnx::Clip(float32[2],-,float32[])->(float32[2]){}",
    )


def test_names_do_not_matter_and_shapes_do(read_text) -> None:
    text = "g (float[B, 4] x) => (float[B, 4] y) { a = Relu(x) y = Relu(a) }"
    first, renamed, larger = read_text(text, B=1), read_text(text.replace("x", "other"), B=1), read_text(text, B=2)
    assert first.graph.signatures[0] == first.graph.signatures[1] == renamed.graph.signatures[0]
    assert larger.graph.signatures[0] != first.graph.signatures[0]


def test_tensor_attributes_count_by_their_content(read_text) -> None:
    def read(value: int) -> str:
        text = f"g (int64[1] n) => (float[N] y) {{ y = ConstantOfShape<value = float[1] {{{value}}}>(n) }}"
        return read_text(text).graph.signatures[0]

    assert read(1) == read(1)
    assert read(1) != read(2)
    assert "value=tensor:" in read(1)


def test_bodies_count_by_what_they_do_and_loops_by_their_trips(read_text) -> None:
    def read(body: str, trips: int = 3, name: str = "a") -> str:
        return read_text(
            f"""g (float[2] x, bool on) => (float[2] y) <int64 m = {{{trips}}}>
            {{ y = Loop(m, on, x) <body = b (int64 i, bool c, float[2] {name}) => (bool c2, float[2] r)
                {{ c2 = Identity(c)  r = {body}({name}) }}> }}"""
        ).graph.signatures[0]

    assert read("Exp") == read("Exp", name="other")
    assert read("Exp") != read("Neg")
    assert read("Exp") != read("Exp", trips=4)
    assert "trips=3" in read("Exp")

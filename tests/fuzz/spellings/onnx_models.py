"""The same computations as ONNX models have them: nodes of exporters around attention, products and windows."""

from __future__ import annotations

from collections.abc import Sequence

from .attention import LAYOUTS
from .writer import Writer

TYPES = {"float32": "float", "float16": "float16"}


def onnx_attention(w: Writer) -> list[str]:
    """MatMul, Softmax, MatMul between transposes, or the op Attention."""
    w.extents(
        b=((2, 3), (4,)), h=((2, 4), (8,)), s=((5, 16), (64, 197)), t=((5, 16), (64, 128)), d=((8, 16), (64,))
    )
    dtype = w.choose(tuple(TYPES))
    own = w.choose(LAYOUTS)
    keys = own.replace("s", "t")
    if w.chance(0.25) and own in ("bhsd", "bsd"):
        mask = w.choose(("", "m"))
        inputs = [own, keys, keys, *(["st"] if mask else [])]
        causal = w.choose((0, 1)) if not mask else 0
        heads = "" if own == "bhsd" else ", q_num_heads = 1, kv_num_heads = 1"
        names = ", ".join(f"x{i}" for i in range(len(inputs)))
        return _model(w, [f"y = Attention <is_causal = {causal}{heads}> ({names})"], inputs, dtype)
    nodes: list[str] = []
    batch = "".join(c for c in own if c not in "sd")
    names = []
    for i, letters in enumerate((own, keys, keys)):
        want = batch + letters.replace("b", "").replace("h", "")
        names.append(_transposed(nodes, f"x{i}", letters, batch + ("sd" if i == 0 else "td"), f"p{i}"))
        assert sorted(want) == sorted(letters)
    transposed = _transposed(nodes, names[1], batch + "td", batch + "dt", "kt")
    inputs = [own, keys, keys]
    scale = w.choose(("", "Mul", "Div"))
    nodes.append(f"s0 = MatMul({names[0]}, {transposed})")
    scores = "s0"
    if scale:
        nodes += ["c = Constant <value = float {8.0}> ()", "t = CastLike(c, x0)", f"s1 = {scale}(s0, t)"]
        scores = "s1"
    if w.chance(0.4):
        nodes.append(f"s2 = Add({scores}, x3)")
        inputs.append(w.choose(("st", "t", batch + "st")))
        scores = "s2"
    nodes.append(f"w = Softmax <axis = -1> ({scores})")
    nodes.append(f"o = MatMul(w, {names[2]})")
    result = _transposed(nodes, "o", batch + "sd", own, "y0")
    if w.chance(0.4) and "1" in map(str, w.shape_of(own)):
        axis = own[[n == 1 for n in w.shape_of(own)].index(True)]
        nodes += [f"a = Constant <value = int64[1] {{{own.index(axis)}}}> ()", f"y1 = Squeeze({result}, a)"]
        result = "y1"
    nodes.append(f"y = Identity({result})")
    return _model(w, nodes, inputs, dtype)


def onnx_perceptron(w: Writer) -> list[str]:
    """Gemm or MatMul, a norm, an activation, and the next."""
    w.extents(
        b=((2, 3), (4,)), s=((5, 16), (64, 197)), k=((8, 16, 33), (64, 768)), n=((8, 20), (64, 1000))
    )
    dtype = w.choose(tuple(TYPES))
    flat = w.chance(0.4)
    rows = "s" if flat else "bs"
    inputs = [rows + "k", "kn", "n", "nk"]
    nodes = ["h0 = Gemm(x0, x1, x2)"] if flat else ["m0 = MatMul(x0, x1)", "h0 = Add(m0, x2)"]
    nodes.append(f"h1 = {w.choose(('Relu', 'Gelu', 'Sigmoid', 'Identity'))}(h0)")
    nodes.append("h2 = MatMul(h1, x3)")
    last = "h2"
    if w.chance(0.5):
        nodes.append("h3 = Add(h2, x0)")
        last = "h3"
    if w.chance(0.6):
        inputs += ["k", "k"]
        nodes.append(f"h4 = LayerNormalization <axis = -1> ({last}, x4, x5)")
        last = "h4"
    nodes.append(f"y = {w.choose(('Identity', 'Softmax', 'ReduceMean'))}({last})")
    return _model(w, nodes, inputs, dtype)


def onnx_windows(w: Writer) -> list[str]:
    """A convolution, a norm, an activation and a pool."""
    w.extents(
        b=((2, 3), (4,)), c=((3, 8), (32, 64)), o=((4, 16), (64,)), h=((6, 9, 12), (28, 56)), w=((6, 8, 11), (28,))
    )
    dtype = w.choose(tuple(TYPES))
    w.extent["p"] = size = w.choose((1, 3, 3, 5))
    stride = w.choose((1, 1, 2))
    inputs = ["bchw", "ocpp", "o"]
    pads = [size // 2] * 4
    nodes = [f"h0 = Conv <strides = [{stride}, {stride}], pads = {pads}> (x0, x1, x2)"]
    last = "h0"
    if w.chance(0.5):
        inputs += ["o"] * 4
        nodes.append("h1 = BatchNormalization(h0, x3, x4, x5, x6)")
        last = "h1"
    nodes.append(f"h2 = {w.choose(('Relu', 'HardSwish', 'Sigmoid', 'Identity'))}({last})")
    kernel = "kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 1, 1]"
    kind = w.choose(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    pool = f"{kind}(h2)" if kind.startswith("Global") else f"{kind} <{kernel}> (h2)"
    nodes += [f"h3 = {pool}", f"y = {w.choose(('Identity', 'Flatten'))}(h3)"]
    return _model(w, nodes, inputs, dtype)


def _transposed(nodes: list[str], name: str, letters: str, want: str, made: str) -> str:
    if letters == want:
        return name
    perm = [letters.index(c) for c in want]
    nodes.append(f"{made} = Transpose <perm = {perm}> ({name})")
    return made


def _model(w: Writer, nodes: Sequence[str], inputs: Sequence[str], dtype: str) -> list[str]:
    values = [w.input(letters, dtype).name for letters in inputs]
    shapes = [", ".join(map(str, w.shape_of(letters))) for letters in inputs]
    kind = TYPES[dtype]
    taken = ", ".join(f"{kind}[{shape}] x{i}" for i, shape in enumerate(shapes))
    body = " ".join(nodes)
    text = f'<ir_version: 10, opset_import: ["" : 23]> model ({taken}) => ({kind}[] y) {{ {body} }}'
    return [w.line(f"jax.tree.leaves(onnx_of({text!r})({', '.join(values)}))[0]", "onnx")]

"""Random stacks of layers: which net a seed stands for, and its sizes, which are those of public ones."""

from __future__ import annotations

from collections.abc import Callable

from ..generate import Program
from .blocks import Stack

STAGES = ((64, 56), (128, 28), (256, 14), (512, 7), (96, 56), (192, 28), (384, 14), (768, 7), (32, 112), (16, 112),
          (24, 56), (40, 28), (80, 14), (112, 14), (160, 7), (320, 7), (144, 28), (232, 14), (48, 32))  # fmt: skip
"""Channels and height of images in the stages of ResNet, ConvNeXt, MobileNet, EfficientNet, RegNet."""

WIDTHS = ((192, 3), (384, 6), (768, 12), (512, 8), (1024, 16), (256, 4), (128, 2), (96, 3), (64, 1), (320, 5))
"""Features of tokens and heads of DeiT, ViT, BERT, T5, CLIP, Swin."""

LENGTHS = (1, 16, 49, 50, 64, 77, 128, 197, 256)
LONG = (384, 512, 577, 1024)
BATCHES = (1, 1, 1, 2, 4, 8)


def _image(s: Stack) -> tuple[int, int]:
    """Begins with an image of a stage. Gives its channels and height."""
    channels, size = s.w.choose(STAGES)
    s.image(s.w.choose(BATCHES), size, channels)
    return channels, size


def _tokens(s: Stack, longest: int = 1024) -> tuple[int, int]:
    """Begins with tokens. Gives features and heads."""
    features, heads = s.w.choose(WIDTHS)
    lengths = [n for n in (LONG if s.w.chance(0.12) else LENGTHS) if n <= longest]
    s.start(s.w.choose(BATCHES), s.w.choose(lengths or LENGTHS), features)
    return features, heads


def stem(s: Stack) -> None:
    """The first layers of a net for images, and those behind them."""
    size = s.w.choose((32, 112, 224, 227))
    s.image(s.w.choose((1, 1, 2, 4)), size, s.w.choose((1, 3, 3, 3)))
    kind = s.w.choose(("resnet", "vgg", "mobile", "patch", "deep"))
    c = s.w.choose((16, 32, 64, 96))
    if kind == "resnet":
        s.unit(c, 7, stride=2)
        s.pool("max", 3, 2)
    elif kind == "vgg":
        s.unit(c, 3, bias=True)
        s.unit(c, 3, bias=True)
        s.pool("max", 2, 2)
    elif kind == "mobile":
        s.unit(c, 3, stride=2)
        s.unit(c, 3, groups=c)
    elif kind == "patch":
        s.conv(c, 4, stride=4, bias=True)
        s.normed()
    else:
        s.unit(c // 2, 3, stride=2)
        s.unit(c, 3)
    if s.w.chance(0.3):
        s.head(s.w.choose((10, 100, 1000)))


def basic(s: Stack) -> None:
    """ResNet's block of two convolutions, and its bottleneck."""
    c, _ = _image(s)
    for _ in range(s.w.choose((1, 1, 2))):
        x, stride = s.x, s.w.choose((1, 1, 2))
        out = c if stride == 1 else 2 * c
        if s.w.chance(0.5):
            s.unit(out, 3, stride=stride)
            s.conv(out, 3, dilation=s.w.choose((1, 1, 2)))
        else:
            groups = s.w.choose((1, 1, 2, 4))
            narrow = max(c // 4 // groups, 1) * groups
            s.unit(narrow, 1)
            s.unit(narrow, 3, stride=stride, groups=groups)
            s.conv(out, 1)
        y = s.normed()
        if s.w.chance(0.2):
            y = s.squeeze_excite(16)
        s.x = x
        if out != c or stride != 1:
            s.conv(out, 1, stride=stride)
            s.normed()
        s.add(y)
        s.activate()
        c = out


def inverted(s: Stack) -> None:
    """MobileNet's and EfficientNet's block."""
    c, _ = _image(s)
    for _ in range(s.w.choose((1, 1, 2))):
        x, stride, wide = s.x, s.w.choose((1, 1, 2)), s.w.choose((1, 2, 3, 4, 6))
        wide *= c
        if wide != c:
            s.unit(wide, 1)
        s.unit(wide, s.w.choose((3, 3, 5)), stride=stride, groups=wide)
        if s.w.chance(0.4):
            s.squeeze_excite()
        out = c if s.w.chance(0.6) else s.w.choose((24, 40, 96, 160))
        s.conv(out, 1)
        s.normed()
        if out == c and stride == 1:
            s.add(x)
        c = out


def convnext(s: Stack) -> None:
    """A wide depthwise convolution, a norm, and two layers."""
    s.layout = s.w.choose(("NHWC", "NHWC", "NCHW"))
    c, _size = _image(s)
    x, window = s.x, s.w.choose((5, 7, 7))
    s.conv(c, window, groups=c, bias=True)
    if s.layout == "NCHW":
        s.x = s.w.line(f"jnp.moveaxis({s.x}, 1, -1)", "transpose")
    s.layer_norm()
    s.mlp(4 * c)
    if s.w.chance(0.6):
        s.x = s.w.line(f"{s.weights(c)} * {s.x}", "scale")
    if s.layout == "NCHW":
        s.x = s.w.line(f"jnp.transpose({s.x}, (0, 3, 1, 2))", "transpose")
    s.add(x)


def dense(s: Stack) -> None:
    """DenseNet's: each layer sees all before it; and a transition."""
    _image(s)
    growth = s.w.choose((12, 24, 32))
    for _ in range(s.w.choose((1, 2, 3))):
        x = s.x
        s.normed()
        s.activate()
        s.unit(4 * growth, 1)
        y = s.conv(growth, 3)
        s.concat(x, y)
    if s.w.chance(0.5):
        s.normed()
        s.activate()
        s.conv(max(s.channels // 2, 1), 1)
        s.pool("avg", 2, 2)


def unet(s: Stack) -> None:
    """Down, up, and the concatenation."""
    c = s.w.choose((16, 32, 64, 128))
    s.image(s.w.choose((1, 1, 2)), s.w.choose((32, 64, 96, 128)), s.w.choose((1, 3, c)))
    s.unit(c, 3)
    kept = s.x
    if s.w.chance(0.5):
        s.pool("max", 2, 2)
        s.unit(2 * c, 3)
    else:
        s.unit(2 * c, 3, stride=2)
    kind = s.w.choose(("repeat", "nearest", "bilinear", "transposed", "shuffle"))
    if kind == "transposed":
        shape = (2, 2, 2 * c, c) if s.layout == "NHWC" else (c, 2 * c, 2, 2)
        s.call("conv_transposed", s.x, s.weights(*shape), repr(s.layout))
    elif kind == "shuffle":
        s.call("pixel_shuffle", s.x, repr(s.layout))
    else:
        s.call("upsample", s.x, repr(s.layout), repr(kind))
    s.concat(kept, s.x)
    s.unit(c, 3)
    s.conv(s.w.choose((1, 2, 19)), 1, bias=True)


def inception(s: Stack) -> None:
    """Branches of several windows, behind each other."""
    c, _ = _image(s)
    x, parts = s.x, list[str]()
    for window in s.w.rng.sample((1, 3, 5, 0), s.w.choose((2, 3, 4))):
        s.x = x
        if window == 0:
            s.pool(s.w.choose(("max", "avg")), 3, 1)
            parts.append(s.unit(32, 1))
        elif window == 1:
            parts.append(s.unit(64, 1))
        else:
            s.unit(max(c // 4, 1), 1)
            parts.append(s.unit(s.w.choose((32, 96, 128)), window))
    s.concat(*parts)


def vit(s: Stack) -> None:
    """A block of a vision transformer, with the patches in front of it at times."""
    if s.w.chance(0.3):
        features, heads = s.w.choose(WIDTHS[:3])
        s.image(s.w.choose((1, 1, 2)), s.w.choose((32, 224)), 3)
        s.conv(features, 16, stride=16, bias=True)
        s.call("to_tokens", s.x, repr(s.layout))
        s.add(s.weights(*s.shape()[1:]))
    else:
        features, heads = _tokens(s)
    _transformer(s, features, heads)
    if s.w.chance(0.2):
        s.x = s.w.line(s.w.choose((f"{s.x}[:, 0]", f"{s.x}.mean(1)")), "pool")
        s.linear(s.w.choose((10, 1000)))


def bert(s: Stack) -> None:
    """Norms behind the residuals, and embeddings."""
    features, heads = s.w.choose(WIDTHS)
    if s.w.chance(0.3):
        words = s.start(s.w.choose(BATCHES), s.w.choose(LENGTHS), dtype="int32", kind="index")
        table = s.weights(s.w.choose((1000, 30522)), features)
        s.x = s.w.line(f"{table}[{words}]", "embedding")
        s.add(s.weights(*s.shape()[1:]))
        s.layer_norm()
    else:
        s.start(s.w.choose(BATCHES), s.w.choose(LENGTHS), features)
    x = s.x
    s.attention(heads)
    s.add(x)
    x = s.layer_norm()
    s.mlp(4 * features)
    s.add(x)
    s.layer_norm()


def gpt(s: Stack) -> None:
    """Causal attention, with the logits behind it at times."""
    features, heads = _tokens(s)
    _transformer(s, features, heads, s.w.choose(("causal", "causal", "sliding")))
    if s.w.chance(0.25):
        s.layer_norm()
        s.linear(s.w.choose((256, 5000, 50257)), bias=False)


def llama(s: Stack) -> None:
    """RMS norms, rotary positions, grouped queries, gated layers."""
    features, heads = s.w.choose(((512, 8), (1024, 16), (768, 12), (2048, 32), (576, 9), (896, 14)))
    kept = s.w.choose([n for n in (1, 2, 3, 4, 8, heads) if heads % n == 0])
    s.start(s.w.choose((1, 1, 2, 4)), s.w.choose((1, 1, 16, 64, 128, 256)), features)
    x = s.x
    s.layer_norm("rms_norm")
    kind = s.w.choose(("causal", "causal", "sliding"))
    s.attention(heads, kept, kind, rotary=s.w.chance(0.8), bias=s.w.chance(0.2))
    s.add(x)
    x = s.x
    s.layer_norm("rms_norm")
    s.mlp(s.w.choose((4 * features, 8 * features // 3)), gated=True, bias=False)
    s.add(x)


def decoder(s: Stack) -> None:
    """Attention to tokens of another length, as a decoder's, Perceiver's or a captioner's."""
    features, heads = _tokens(s, 256)
    batch = s.shape()[0]
    other = s.w.taken((batch, s.w.choose(LENGTHS), s.w.choose((features, 512, 768))), s.dtype)
    if s.w.chance(0.4):
        x = s.x
        s.layer_norm()
        s.attention(heads, kind="causal")
        s.add(x)
    x = s.x
    s.layer_norm()
    s.attention(heads, other=other)
    s.add(x)
    if s.w.chance(0.5):
        x = s.layer_norm()
        s.mlp(4 * features, gated=s.w.chance(0.3))
        s.add(x)


def swin(s: Stack) -> None:
    """Attention in windows of an image, which may be shifted."""
    s.layout = "NHWC"
    features, heads, size = s.w.choose(((96, 3, 56), (192, 6, 28), (384, 12, 14), (768, 24, 7), (128, 4, 28)))
    s.image(s.w.choose((1, 1, 2)), size, features)
    x = s.x
    s.layer_norm()
    shifted = s.w.chance(0.4)
    if shifted:
        s.x = s.w.line(f"jnp.roll({s.x}, (-3, -3), (1, 2))", "roll")
    s.call("window_partition", s.x, 7)
    s.attention(heads)
    s.call("window_merge", s.x, 7, size, size)
    if shifted:
        s.x = s.w.line(f"jnp.roll({s.x}, (3, 3), (1, 2))", "roll")
    s.add(x)
    if s.w.chance(0.7):
        x = s.x
        s.layer_norm()
        s.mlp(4 * features)
        s.add(x)
    if s.w.chance(0.3) and size % 2 == 0:
        s.call("patch_merge", s.x)
        s.layer_norm()
        s.linear(2 * features, bias=False)


def mixer(s: Stack) -> None:
    """Layers across positions, then across features."""
    features, _ = _tokens(s, 256)
    length = s.shape()[1]
    x = s.x
    s.layer_norm()
    s.call("mixed_tokens", s.x, s.weights(length, 2 * features), s.weights(2 * features, length))
    s.add(x)
    x = s.x
    s.layer_norm()
    s.mlp(4 * features)
    s.add(x)


def diffusion(s: Stack) -> None:
    """A residual block with a time's embedding, and attention over an image."""
    s.norm, s.act = "group", "jax.nn.silu"
    c = s.w.choose((32, 64, 128, 320))
    size = s.w.choose((8, 16, 32))
    x = s.image(s.w.choose((1, 2)), size, c)
    batch = s.shape()[0]
    s.normed()
    s.activate()
    y = s.conv(c, 3, bias=True)
    if s.w.chance(0.7):
        times = s.w.taken((batch,), "int32", "index")
        s.call("sinusoid", times, 128)
        s.x = s.w.line(f"{s.x}.astype({s.dtype!r})", "cast")
        t = s.linear(c)
        t = f"{t}[:, None, None, :]" if s.layout == "NHWC" else f"{t}[:, :, None, None]"
        s.x = s.w.line(f"{y} + {t}", "time")
    s.normed()
    s.activate()
    s.conv(c, 3, bias=True)
    s.add(x)
    if s.w.chance(0.5) and size <= 16:
        x = s.x
        s.normed()
        s.call("to_tokens", s.x, repr(s.layout))
        s.attention(s.w.choose((1, 4)))
        s.call("to_image", s.x, size, size, repr(s.layout))
        s.add(x)


def _transformer(s: Stack, features: int, heads: int, kind: str = "") -> None:
    """Norm, attention, residual, norm, layers, residual; the halves in parallel at times."""
    x = s.x
    normed = s.layer_norm()
    kept = s.w.choose((heads, heads, 1))
    s.attention(heads, kept, kind, bias=s.w.chance(0.8))
    if s.w.chance(0.1):
        y = s.add(x)
        s.x = normed
        s.mlp(4 * features)
        s.add(y)
        return
    s.add(x)
    if s.w.chance(0.8):
        x = s.x
        s.layer_norm()
        s.mlp(s.w.choose((2, 4, 4)) * features, gated=s.w.chance(0.2))
        s.add(x)


FAMILIES: tuple[tuple[str, Callable[[Stack], None]], ...] = (
    ("vit", vit),
    ("basic", basic),
    ("llama", llama),
    ("inverted", inverted),
    ("convnext", convnext),
    ("gpt", gpt),
    ("stem", stem),
    ("dense", dense),
    ("bert", bert),
    ("swin", swin),
    ("unet", unet),
    ("decoder", decoder),
    ("inception", inception),
    ("mixer", mixer),
    ("diffusion", diffusion),
)
"""What seeds go through in turn."""


def stack_of(seed: int, only: str = "") -> Program:
    """The stack of a seed. only: names of families, separated by commas."""
    names = [n for n in only.split(",") if n]
    families = [row for row in FAMILIES if not names or row[0] in names]
    stack = Stack.of(seed)
    families[seed % len(families)][1](stack)
    return stack.program()

"""`.tw` functions for each construct of the language that takes dimensions, and what they compute in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Case:
    """A `.tw` function `f` and what it computes of its arguments in numpy. ranged: whether most of its sizes are served
    by versions for ranges."""

    text: str
    fn: Callable[..., Any]
    ranged: bool = True


def softmax(x: Any, axis: int = -1) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis, keepdims=True)


def counted(x: Any, first: int, last: int) -> Any:
    out = np.zeros_like(x[0])
    for i in range(first, last):
        out = out * np.float32(0.5) + x[i]
    return out


def blocks(x: Any) -> Any:
    return x.reshape(len(x) // 4, 4, x.shape[1]).sum(1) if len(x) % 4 == 0 else None


def convolved(x: Any, w: Any, step: int, padding: str) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return np.asarray(jax.lax.conv_general_dilated(x, w, (step, step), padding, dimension_numbers=numbers))


def pooled(x: Any) -> Any:
    b, h, w, c = x.shape
    windows = x[:, : h // 2 * 2, : w // 2 * 2].reshape(b, h // 2, 2, w // 2, 2, c)
    return windows.max((2, 4)) + windows.mean((2, 4))


def twice_where(condition: str) -> str:
    """The text of a function that doubles x where a condition on its sizes holds, and negates it elsewhere."""
    return f"""fn f(x: f32[T, N]) -> f32[T, N] {{
    if {condition} {{
        y = x * 2.0
    }} else {{
        y = -x
    }}
    return y
}}"""


CASES: dict[str, Case] = {
    "elementwise": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    return relu(x) * 2.0 + x\n}",
        lambda x: np.maximum(x, 0) * 2 + x,
    ),
    "a size as data": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    return x / N + T\n}",
        lambda x: x / x.shape[1] + x.shape[0],
    ),
    "a size as a tensor": Case(
        "fn f(x: f32[T, N]) -> f32[] {\n    return (T as f32) + ((N * 2) as f32)\n}",
        lambda x: x.shape[0] + 2 * x.shape[1],
    ),
    "a size as an integer": Case(
        "fn f(x: i32[T]) -> i32[T] {\n    return x * T + ((T - 3) as i32)\n}",
        lambda x: x * len(x) + len(x) - 3,
    ),
    "a narrow integer": Case(
        "fn f(x: i8[T]) -> i8[T] {\n    return max(x, T)\n}",
        lambda x: np.maximum(x, np.int8(len(x))),
    ),
    "floats of sizes": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n"
        "    return x * (1 / sqrt(N)) + 0.5 * T ** 2 - T / 3 + (T % 4 + N // 3)\n"
        "}",
        lambda x: x / np.sqrt(x.shape[1]) + 0.5 * len(x) ** 2 - len(x) / 3 + len(x) % 4 + x.shape[1] // 3,
    ),
    "floats that become whole": Case(
        "fn f(x: i32[T]) -> i32[T] {\n    return x + ((T / 3) as i32) + ((7.5 // T) as i32)\n}",
        lambda x: x + len(x) // 3 + int(7.5 // len(x)),
    ),
    "a list of sizes": Case(
        "fn f(x: f32[T]) -> f32[2, 2] {\n    return [[T, 1], [T / 2, T - 1]] as f32 + 0 * sum(x)\n}",
        lambda x: np.float32([[len(x), 1], [len(x) / 2, len(x) - 1]]),
    ),
    "a mean": Case(
        "fn f(x: f32[T, N]) -> f32[N] {\n    return mean(x, axis=0) + variance(x, axis=0)\n}",
        lambda x: x.mean(0) + x.var(0),
    ),
    "an eps of sizes": Case(
        "fn f(x: f32[T, N], g: f32[N]) -> f32[T, N] {\n    return rms_norm(x, g, eps=1 / N)\n}",
        lambda x, g: x / np.sqrt((x * x).mean(1, keepdims=True) + 1 / x.shape[1]) * g,
    ),
    "a softmax": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    return softmax(x, axis=0)\n}",
        lambda x: softmax(x, 0),
    ),
    "a product": Case(
        "fn f(x: f32[T, N], w: f32[N, M]) -> f32[T, M] {\n    return x @ w\n}",
        lambda x, w: x @ w,
    ),
    "batches of products": Case(
        "fn f(x: f32[T, N, 3], w: f32[3, M]) -> f32[T, N, M] {\n    return x @ w\n}",
        lambda x, w: x @ w,
    ),
    "an einsum": Case(
        'fn f(x: f32[T, N], y: f32[M, N]) -> f32[M, T] {\n    return einsum("tn,mn->mt", x, y)\n}',
        lambda x, y: y @ x.T,
    ),
    "a dimension that is computed": Case(
        "fn f(x: f32[T], w: f32[4 * T]) -> f32[T, 4] {\n    return x[:, new] * reshape(w, shape=[T, 4])\n}",
        lambda x, w: x[:, None] * w.reshape(-1, 4),
    ),
    "merged and split": Case(
        "fn f(x: f32[T, N]) -> f32[N, T] {\n"
        "    y = reshape(x, shape=[T * N])\n"
        "    return reshape(y * 2.0, shape=[N, -1])\n"
        "}",
        lambda x: 2 * x.reshape(x.shape[::-1]),
    ),
    "blocks of four": Case(
        "fn f(x: f32[T, N]) -> f32[T // 4, N] {\n    return sum(reshape(x, shape=[T // 4, 4, N]), axis=1)\n}",
        blocks,
        ranged=False,
    ),
    "flattened": Case(
        "fn f(x: f32[T, N]) -> f32[T * N] {\n    return reshape(x, shape=[-1])\n}",
        lambda x: x.reshape(-1),
    ),
    "parts": Case(
        "fn f(x: f32[T, N]) -> f32[T - 1, N] {\n    return x[1:] - x[:-1]\n}",
        lambda x: x[1:] - x[:-1],
    ),
    "a half": Case(
        "fn f(x: f32[T, N]) -> f32[T // 2, N] {\n    return x[T // 2 : 2 * (T // 2)]\n}",
        lambda x: x[len(x) // 2 : 2 * (len(x) // 2)],
    ),
    "every other one": Case(
        "fn f(x: f32[T, N]) -> f32[(T + 1) // 2, N] {\n    return x[::2]\n}",
        lambda x: x[::2],
    ),
    "backwards": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    return x[::-1]\n}",
        lambda x: x[::-1],
    ),
    "backwards by two": Case(
        "fn f(x: f32[T, N]) -> f32[(T + 1) // 2, N] {\n    return x[::-2]\n}",
        lambda x: x[::-2],
    ),
    "a row": Case(
        "fn f(x: f32[T, N]) -> f32[N] {\n    return x[-1] + x[0] + x[T // 2]\n}",
        lambda x: x[-1] + x[0] + x[len(x) // 2],
    ),
    "a list of rows": Case(
        "fn f(x: f32[T, N]) -> f32[2, N] {\n    return x[[0, T - 1]]\n}",
        lambda x: x[[0, -1]],
    ),
    "rows by index": Case(
        "fn f(x: f32[T, N], i: i32[M]) -> f32[M, N] {\n    return x[i]\n}",
        lambda x, i: x.take(i, 0, mode="clip"),
    ),
    "columns by index": Case(
        "fn f(x: f32[T, N], i: i32[M]) -> f32[T, M] {\n    return take(x, i, axis=1)\n}",
        lambda x, i: x.take(i, 1, mode="clip"),
    ),
    "a part that moves": Case(
        "fn f(x: f32[T, N], i: i32[]) -> f32[T - 1, N] {\n    return slice(x, i, size=T - 1)\n}",
        lambda x, i: x[min(i, 1) :][: len(x) - 1],
    ),
    "a row set": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    x[T - 1] = x[0] * 2.0\n    return x\n}",
        lambda x: np.vstack([x[:-1], 2 * x[:1]]),
    ),
    "a part set": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    x[1:, 0] = 3.0\n    return x\n}",
        lambda x: np.where((np.arange(len(x)) > 0)[:, None] & (np.arange(x.shape[1]) == 0), np.float32(3), x),
    ),
    "rows added": Case(
        "fn f(x: f32[T, N], i: i32[M], y: f32[M, N]) -> f32[T, N] {\n    return scatter_add(x, i, y)\n}",
        lambda x, i, y: np.asarray(jax.numpy.asarray(x).at[i].add(y)),
    ),
    "an iota": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    return x + iota(shape=[T, N], axis=1, type=f32)\n}",
        lambda x: x + np.arange(x.shape[1]),
    ),
    "a mask": Case(
        "fn f(x: f32[T, T]) -> f32[T, T] {\n"
        "    a = iota(shape=[T, T])\n"
        "    b = iota(shape=[T, T], axis=1)\n"
        "    return select(b <= a, x, -1.0)\n"
        "}",
        lambda x: np.where(np.tril(np.ones_like(x)) > 0, x, -1),
    ),
    "one hot": Case(
        "fn f(i: i32[T], x: f32[N, 3]) -> f32[T, 3] {\n    return one_hot(i, depth=N, type=f32) @ x\n}",
        lambda i, x: np.eye(len(x) + 2, dtype=x.dtype)[i][:, : len(x)] @ x,
    ),
    "full, zeros and ones": Case(
        "fn f(x: f32[T, N]) -> f32[T, 2 * N] {\n"
        "    return concat(x, full(1 / T, shape=[T, N], type=f32) + zeros(shape=[N], type=f32), axis=1)\n"
        "}",
        lambda x: np.hstack([x, np.full_like(x, 1 / len(x))]),
    ),
    "broadcast": Case(
        "fn f(x: f32[N]) -> f32[N + 1, N] {\n    return broadcast(x, shape=[N + 1, N])\n}",
        lambda x: np.broadcast_to(x, (len(x) + 1, len(x))),
    ),
    "one behind the other": Case(
        "fn f(x: f32[T, N], y: f32[M, N]) -> f32[T + M, N] {\n    return concat(x, y, axis=0)\n}",
        lambda x, y: np.vstack([x, y]),
    ),
    "stacked": Case(
        "fn f(x: f32[T, N]) -> f32[T, 2, N] {\n    return stack(x, x * 2.0, axis=1)\n}",
        lambda x: np.stack([x, 2 * x], 1),
    ),
    "split": Case(
        "fn f(x: f32[T, 3 * N], y: f32[N]) -> f32[T, N] {\n"
        "    a, b, c = split(x, parts=3)\n"
        "    return a * b - c + y\n"
        "}",
        lambda x, y: np.multiply(*np.split(x, 3, 1)[:2]) - np.split(x, 3, 1)[2] + y,
    ),
    "a frame": Case(
        "fn f(x: f32[T, N]) -> f32[T + 3, N * 2] {\n    return pad(x, 1.0, low=[1, N], high=[2, 0])\n}",
        lambda x: np.pad(x, ((1, 2), (x.shape[1], 0)), constant_values=1),
    ),
    "transposed": Case(
        "fn f(x: f32[T, N]) -> f32[N, T] {\n    return transpose(x) * 2.0\n}",
        lambda x: 2 * x.T,
    ),
    "sorted": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    return sort(x, axis=1)\n}",
        lambda x: np.sort(x, 1),
    ),
    "all in order": Case(
        "fn f(x: f32[T, N]) -> i32[T, N - 1] {\n    v, i = top_k(x, k=N - 1)\n    return i\n}",
        lambda x: np.argsort(-x, 1, kind="stable")[:, :-1],
    ),
    "running sums": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    return cumsum(x, axis=0)\n}",
        lambda x: np.cumsum(x, 0),
    ),
    "the largest": Case(
        "fn f(x: f32[T, N]) -> i32[T] {\n    return argmax(x)\n}",
        lambda x: x.argmax(1),
    ),
    "a convolution": Case(
        "fn f(x: f32[B, T, N, 2], w: f32[3, 3, 2, 4]) -> f32[B, (T + 1) // 2, (N + 1) // 2, 4] {\n"
        '    return conv(x, w, strides=2, padding="same")\n'
        "}",
        lambda x, w: convolved(x, w, 2, "SAME"),
        ranged=False,
    ),
    "a convolution without padding": Case(
        "fn f(x: f32[B, T, N, 2], w: f32[2, 1, 2, 4]) -> f32[B, T - 1, N, 4] {\n    return conv(x, w)\n}",
        lambda x, w: convolved(x, w, 1, "VALID"),
    ),
    "pools": Case(
        "fn f(x: f32[B, T, N, 2]) -> f32[B, T // 2, N // 2, 2] {\n"
        "    return max_pool(x, window=2) + avg_pool(x, window=2)\n"
        "}",
        pooled,
    ),
    "a window of an open size": Case(
        "fn f(x: f32[B, T, 2]) -> f32[B, 1, 2] {\n    return max_pool(x, window=T)\n}",
        lambda x: x.max(1, keepdims=True),
        ranged=False,
    ),
    "a graph op": Case(
        'fn f(x: f32[T, N]) -> f32[T] {\n    return graph.reduce(x, kind="sum", dims=[1])\n}',
        lambda x: x.sum(1),
    ),
    "a loop": Case(
        "fn f(x: f32[T, N]) -> f32[N] {\n"
        "    y = zeros(shape=[N], type=f32)\n"
        "    for t in 0..T {\n"
        "        y = y * 0.5 + x[t]\n"
        "    }\n"
        "    return y\n"
        "}",
        lambda x: counted(x, 0, len(x)),
    ),
    "a loop between sizes": Case(
        "fn f(x: f32[T, N]) -> f32[N] {\n"
        "    y = zeros(shape=[N], type=f32)\n"
        "    for t in T // 2..T - 1 {\n"
        "        y = y * 0.5 + x[t]\n"
        "    }\n"
        "    return y\n"
        "}",
        lambda x: counted(x, len(x) // 2, len(x) - 1),
    ),
    "a loop that may have no rounds": Case(
        "fn f(x: f32[T, N]) -> f32[N] {\n"
        "    y = zeros(shape=[N], type=f32)\n"
        "    for t in 6..T {\n"
        "        y = y * 0.5 + x[t]\n"
        "    }\n"
        "    return y\n"
        "}",
        lambda x: counted(x, 6, len(x)),
    ),
    "loops in a loop": Case(
        "fn f(x: f32[T, N]) -> i32[] {\n"
        "    n = 0\n"
        "    for i in 0..T {\n"
        "        for j in 0..N + 1 {\n"
        "            n = n + T\n"
        "        }\n"
        "    }\n"
        "    return n + ((0 * sum(x)) as i32)\n"
        "}",
        lambda x: len(x) ** 2 * (x.shape[1] + 1),
    ),
    "a loop that a size ends": Case(
        "fn f(x: f32[T, N]) -> f32[] {\n"
        "    s = 0.0\n"
        "    i = 0\n"
        "    while i < T - 1 {\n"
        "        s = s + x[i, 0] / T\n"
        "        i = i + 1\n"
        "    }\n"
        "    return s\n"
        "}",
        lambda x: (x[:-1, 0] / len(x)).sum(),
    ),
    "a number that a loop carries": Case(
        "fn f(x: f32[T, N]) -> i32[] {\n"
        "    n = T\n"
        "    for i in 0..3 {\n"
        "        n = n + N\n"
        "    }\n"
        "    return n + ((0 * sum(x)) as i32)\n"
        "}",
        lambda x: len(x) + 3 * x.shape[1],
    ),
    "a size that decides": Case(
        twice_where("T > 20"),
        lambda x: 2 * x if len(x) > 20 else -x,
        ranged=False,
    ),
    "a size that decides, and a float": Case(
        twice_where("T >= 16.5 and N != 3"),
        lambda x: 2 * x if len(x) > 16 and x.shape[1] != 3 else -x,
        ranged=False,
    ),
    "numbers that a branch chooses": Case(
        "fn f(x: f32[T, N]) -> f32[N] {\n"
        "    n = T\n"
        "    if sum(x) > 0.0 {\n"
        "        n = N\n"
        "    }\n"
        "    return x[0] * (n as f32)\n"
        "}",
        lambda x: x[0] * (x.shape[1] if x.sum(dtype=np.float64) > 0 else len(x)),
    ),
    "the larger size": Case(
        "fn f(x: f32[T, N]) -> f32[max(T, N), 1] {\n"
        "    return zeros(shape=[max(T, N), 1], type=f32) + x[0, 0]\n"
        "}",
        lambda x: np.full((max(x.shape), 1), x[0, 0]),
    ),
    "a function": Case(
        "fn g(x: f32[K, M], y: f32[2 * M]) -> f32[K] {\n"
        "    return x @ y[:M] / M\n"
        "}\n"
        "\n"
        "pub fn f(x: f32[T, N]) -> f32[N] {\n"
        "    return g(transpose(x), full(2.0, shape=[2 * T], type=f32))\n"
        "}",
        lambda x: 2 * x.mean(0),
    ),
    "a quantized value": Case(
        "fn f(x: f32[T, N]) -> f32[T, N] {\n    y: f32[T, N] quant i8(scale=0.05) = x\n    return y\n}",
        lambda x: np.clip(np.round(x / np.float32(0.05)), -128, 127) * np.float32(0.05),
    ),
    "half precision": Case(
        "fn f(x: f16[T, N]) -> f16[T, N] {\n    return x / N + T\n}",
        lambda x: x / np.float16(x.shape[1]) + np.float16(len(x)),
    ),
}

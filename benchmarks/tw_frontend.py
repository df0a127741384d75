"""How long a .tw file of 2,000 lines takes to parse and to lower, phase by phase: the best of three, in one process.

`python benchmarks/tw_frontend.py [LINES]`.
"""

import gc
import sys
import time

from tilewright.frontends.text.diagnostics import DiagnosticLog, SourceFile
from tilewright.frontends.text.frontend import lower_tw
from tilewright.frontends.text.parse import parse_items
from tilewright.frontends.text.tokens import tokenize

LINES = 2000


def program(lines: int = LINES) -> str:
    """A program of about `lines` lines in which every line is compiled: layers of 20 lines and a loop each 10."""
    body = []
    functions = []
    layer = 0
    while len(body) + 20 * len(functions) < lines - 10:
        functions.append(
            f"fn layer{layer}(x: f32[N, K], w: f32[K, K], b: f32[K]) -> f32[N, K] {{\n"
            "    h = layer_norm(x, b, b)\n"
            "    q = h @ w + b\n"
            "    k = h @ transpose(w) - b\n"
            '    s = einsum("ik,jk->ij", q, k) / sqrt(K)\n'
            "    p = softmax(s, axis=-1)\n"
            "    a = p @ h\n"
            "    m = select(a > 0.0, a, 0.01 * a)\n"
            "    u = m[:, ::-1] * 2.0 + x\n"
            "    i = iota(shape=[N, K], axis=1)\n"
            "    u = select(i < K // 2, u, x)\n"
            "    t = x[0]\n"
            "    for r in 0..3 {\n"
            "        t = tanh(t * x[r]) + b\n"
            "    }\n"
            "    y = gelu(u + t)\n"
            "    v = concat(y, x, axis=1)\n"
            "    v = v[:, :K]\n"
            "    return v + sigmoid(x)\n"
            "}"
        )
        body.append(f"    x = layer{layer}(x, w, b)")
        layer += 1
    head = "pub fn main(x: f32[16, 32], w: f32[32, 32], b: f32[32]) -> f32[16, 32] {"
    return "\n".join([*functions, head, *body, "    return x", "}", ""])


def best(run, times: int = 3) -> float:
    """Seconds of the fastest of `times` runs."""
    found = []
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    text = program(int(sys.argv[1]) if len(sys.argv) > 1 else LINES)
    source = SourceFile("model.tw", text)
    start = time.process_time()
    made = lower_tw("model.tw", text)
    first = time.process_time() - start
    gc.disable()
    ops = sum(1 for _ in made.module.walk())
    tokens = best(lambda: tokenize(source, DiagnosticLog()))
    tree = best(lambda: parse_items(source, DiagnosticLog()))
    whole = best(lambda: lower_tw("model.tw", text))
    print(
        f"{len(text.splitlines())} lines, {ops} ops: first {first:.2f} s (with the grammar), then {whole:.2f} s"
    )
    print(f"tokens {tokens:.2f} s, tree {tree - tokens:.2f} s, lowering {whole - tree:.2f} s")


if __name__ == "__main__":
    main()

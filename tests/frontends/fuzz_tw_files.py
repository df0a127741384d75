"""For fuzz_tw.py: programs of several files with weights, symbolic dimensions and annotations, and text that is odd as
text: line ends, tabs, other scripts, binary junk, very long lines, deep nesting, huge numbers."""

from __future__ import annotations

import random
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

LIBRARY = {
    "lib.tw": """import "deep/more.tw" as more
const SIZE = 4
const TABLE: f32[4] = [0.5, 1.0, 2.0, -1]
param bias: f32[4] = "w.npz"["v"]
pub fn affine(x: f32[N, K], w: f32[K, M]) -> f32[N, M] {
    return more.twice(x @ w)
}
pub fn pair(x: f32[N]) -> (f32[N], f32[N]) {
    return x * TABLE[0], x + bias[0]
}
fn hidden(x: f32[N]) -> f32[N] { return x }
""",
    "deep/more.tw": "pub fn twice(x: f32[N, M]) -> f32[N, M] {\n    return x + x\n}\n",
    "circle.tw": 'import "circle.tw" as again\npub fn f(x: f32[2]) -> f32[2] { return again.f(x) }\n',
    "broken.tw": "pub fn f(x: f32[2] -> { return x + \n",
    "empty.tw": "",
}
FILES = ["lib.tw", "deep/more.tw", "circle.tw", "broken.tw", "empty.tw", "none.tw", "lib.txt", ".", ""]
STORES = ["w.npz", "w.npz", "w.safetensors", "cut.safetensors", "empty.npz", "none.npz", "lib.tw", ".", ""]
ODD = "\t\r\v\f\x00\x07\u00a0\u2003\u2028\u200b\u200f\u0301éßж漢🙂\ufeff\U0001d54f"


def write_files(folder: Path) -> None:
    """What the programs import and read, good and bad."""
    for name, text in LIBRARY.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    arrays = {"w": np.ones((4, 4), np.float32), "v": np.ones(4, np.float32), "h": np.ones(4, np.float16)}
    np.savez(folder / "w.npz", **arrays, text=np.array("text"), big=np.ones(3, np.complex64))
    save_file({**arrays, "b": np.ones(4, ml_dtypes.bfloat16)}, folder / "w.safetensors")
    (folder / "cut.safetensors").write_bytes((folder / "w.safetensors").read_bytes()[:70])
    (folder / "empty.npz").write_bytes(b"")


class Linked:
    """Programs that import, read weights, are called with symbolic dimensions, and annotate values."""

    def __init__(self, rng: random.Random):
        self.rng = rng

    def good(self, yes: str, *others: str) -> str:
        """Most often what is right."""
        return yes if self.rng.random() < 0.85 else self.rng.choice(others)

    def quant(self) -> str:
        rng = self.rng
        kind = self.good("i8", "i4", "f8E4M3FN", "f32", "i64")
        scale = self.good("0.5", "[0.5, 1, 2, 4]", "-1", "nan", "[]", "[[1]]", "x", "1e999", '"a"', "1e-300")
        words = [f"scale={scale}"]
        if rng.random() < 0.4:
            words.append(f"zero={rng.choice(['3', '-200', '[1, 2, 3, 4]', '0.5', 'true', '9' * 30])}")
        if rng.random() < 0.4:
            words.append(f"axis={rng.choice(['0', '-1', '1', '7', '0.0', 'N'])}")
        return f" quant {kind}({', '.join(words)})" if rng.random() < 0.5 else ""

    def dims(self) -> str:
        odd = ["N, K", "2 * N, K", "N // 2, 4", "0, 4", "-1", "N ** 40", "Q, 4", "1 / 2", "TABLE", "x"]
        return self.good("4, 4", *odd)

    def statement(self) -> str:
        rng = self.rng
        ways = [
            f"x: f32[{self.dims()}]{self.quant()} = lib.affine(x, w)",
            f"{self.good('a, b', 'a', 'a, b, c', 'a, a')} = {self.good('lib.pair(y)', 'y, y', 'lib.pair(y), y', 'x')}",
            f"y = {self.good('lib.TABLE', 'lib.bias', 'lib.hidden(y)', 'lib.nothing', 'lib', 'more.twice(x)')} + y",
            f"x, w = w, x @ {self.good('w', 'y', 'h', 'wide(x)')}",
            "y = wide(x)[0] + sort(y) * cumsum(y, reverse=true)",
            f"v, i = top_k(y, k={self.good('2', '9', '-1', 'K')})",
            f"x[{self.good('[0, 2]', 'i', 'i, i', ':, [1]', '[0], 1:', 'x')}] = {self.good('1', 'y', 'x', 'h')}",
            f"y = y + slice(x, {self.good('n', '0', 'y', '99')}, size=1)[0]",
            f"x = scatter_add(x, {self.good('[1, 1]', 'y', '[]')}, y)",
            f"y{': f32[4]' + self.quant() if rng.random() < 0.5 else ''} = y * {self.good('2', 'h', 'p', '1e40')}",
        ]
        return rng.choice(ways)

    def program(self) -> str:
        rng = self.rng
        stored = self.good('"w"', '"v"', '"text"', '"big"', '"q"', '""')
        items = [
            f'import "{self.good("lib.tw", *FILES)}" as lib',
            f'import "{rng.choice(FILES)}" as {self.good("other", "lib", "w", "graph", "sum", "f32")}',
            f'param p: f32[{self.dims()}]{self.quant()} = "{self.good("w.npz", *STORES)}"[{stored}]',
            f"const TABLE{self.good(': f32[2]', '', ': f32[3]')} = {self.good('[0.5, 2]', '[1, [2]]', 'TABLE')}",
        ]
        rng.shuffle(items)
        wide = "fn wide(a: f32[R, C]) -> f32[R, C] {\n    return a * C + sum(a, axis=0)\n}"
        head = f"pub fn main(x: f32[N, K]{self.quant()}, w: f32[K, K], y: f32[K], n: i32[], h: f16[{self.dims()}])"
        body = "\n".join(f"    {self.statement()}" for _ in range(rng.randint(1, 4)))
        result = f" -> f32[{self.good('N, K', '4, 4', 'K, N', 'Z')}]{self.quant()} {{"
        kept = items[: rng.randint(0, 4)]
        if rng.random() < 0.7 and items[0] not in kept:
            kept.append('import "lib.tw" as lib')
        return "\n".join([*kept, wide, head + result, body, "    return x", "}", ""])


def odd(rng: random.Random, text: str) -> bytes:
    """A program as a file that is odd as text."""
    n = rng.choice([3, 20, 59, 61, 200, 3000])
    number = rng.choice(["9" * n, "1e" + "9" * min(n, 300), "0." + "0" * n + "1", "1_000", "1__", "1.e5", "0x1f", ".5"])
    inner = {
        "brackets": "x = " + "(" * n + "x" + ")" * n,
        "lists": "y = " + "[" * n + "1" + "]" * n,
        "terms": "x = x" + " + x" * n,
        "powers": "y = 2" + " ** 2" * n,
        "signs": "x = " + "-" * n + "x",
        "blocks": "if p {\n" * min(n, 200) + "x = -x\n" + "}\n" * min(n, 200),
        "loops": "for i in 0..2 {\n" * min(n, 80) + "x = -x\n" + "}\n" * min(n, 80),
        "branches": "if p { x = -x }" + " else if p { x = x }" * n,
        "calls": "x = " + "relu(" * n + "x" + ")" * n,
        "indices": "x = x" + "[:]" * n,
        "numbers": f"y = y * {number}",
        "a long list": f"y = sum([{', '.join(['1.5'] * n * 5)}])",
        "a long name": f"{'n' * n * 9} = 1",
        "a long string": f'y = einsum("{"ij," * n}", y)',
        "a long comment": f"y = y  # {'words ' * n}",
    }
    main = text.find(") -> ")
    at = text.find("{\n", max(main, 0)) + 2
    kind = rng.random()
    if kind < 0.6 and at > 1:
        text = f"{text[:at]}{inner[rng.choice(list(inner))]}\n{text[at:]}"
    for _ in range(rng.choice([0, 0, 1, 5])):
        place = rng.randrange(len(text) + 1)
        text = text[:place] + rng.choice(ODD) * rng.choice([1, 1, 30]) + text[place:]
    made = text.encode(errors="surrogatepass")
    kind = rng.random()
    if kind < 0.1:
        return rng.choice([b"", b"\n", b" \t\r\n", b"\xef\xbb\xbf", b"#", b"\r"])
    if kind < 0.2:
        return rng.randbytes(rng.choice([1, 40, 5000]))
    if kind < 0.35:
        return made.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n\n", b";\n"]))
    if kind < 0.45:
        return made.replace(b"    ", b"\t").replace(b" ", rng.choice([b"  ", b"\t", b""]))
    if kind < 0.55:
        return made[: rng.randrange(len(made) + 1)]
    return b"\xef\xbb\xbf" + made if kind < 0.6 else made

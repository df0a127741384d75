"""Writes the three elementwise.mlir files from the table of functions; run it when the table changes."""

from pathlib import Path

from tilewright.dialects.elementwise import FUNCTIONS, Function

INTEGER = {"not", "popcnt", "clz", "and", "or", "xor", "shl", "shr_logical", "shr_arithmetic"}
HEAD = "// RUN: ROUNDTRIP\n// RUN: GENERIC_ROUNDTRIP\n// Written by lit_tests/dialects/elementwise.py\n\n"


def elements(f: Function) -> tuple[list[str], str]:
    """Element types of the operands and of the result."""
    kind = "i32" if f.name in INTEGER else "f32"
    result = {"same": kind, "i1": "i1", "any": "f16", "bits": "f32" if kind == "i32" else "i32"}[f.result]
    return [*(["i1"] if f.predicate else []), *[kind] * (f.arity - f.predicate)], result


def signature(operands: list[str], result: str) -> str:
    """The types as our ops print them: once where all agree."""
    return result if {*operands, result} == {result} else f"({', '.join(operands)}) -> {result}"


def values(level: str, template: str) -> str:
    """Ops with value semantics on a level's type."""
    names = {"i32": "%i", "f32": "%f", "i1": "%p"}
    types = ", ".join(map(template.format, names))
    lines = [HEAD + f'{", ".join(names.values())} = "test.op"() : () -> ({types})\n']
    for f in FUNCTIONS.values():
        operands, result = elements(f)
        types = signature([template.format(e) for e in operands], template.format(result))
        lines.append(
            f"%{f.name} = {level}.{f.name} {', '.join(names[e] for e in operands)} : {types}\n"
            f"// CHECK: {level}.{f.name} %{{{{.*}}}} : {types}\n"
        )
    return "".join(lines)


def instructions() -> str:
    """Instructions that fill a buffer."""
    template = "!npu.buffer<8x16x{}, ub>"
    names = {"i32": "%i", "f32": "%f", "i1": "%p", "f16": "%h"}
    lines = [
        HEAD
        + f'{", ".join(names.values())} = "test.op"() : () -> ({", ".join(map(template.format, names))})\n'
    ]
    for f in FUNCTIONS.values():
        operands, result = elements(f)
        everything = [*operands, result]
        types = ", ".join(template.format(e) for e in everything)
        lines.append(
            f"npu.v{f.name} {', '.join(names[e] for e in everything)} : ({types})\n"
            f"// CHECK: npu.v{f.name} %{{{{.*}}}} : ({types})\n"
        )
    return "".join(lines)


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "graph" / "elementwise.mlir").write_text(values("graph", "tensor<8x16x{}>"))
    (here / "tile" / "elementwise.mlir").write_text(values("tile", "!tile.tile<8x16x{}, ub>"))
    (here / "npu" / "elementwise.mlir").write_text(instructions())

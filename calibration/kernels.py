"""Measured programs that a JAX function cannot say, as text of the npu level: reads that nothing uses, and vector
instructions at given addresses."""

from __future__ import annotations

IR_TYPES = {"bool": "i1", "u8": "ui8", "u16": "ui16", "u32": "ui32", "u64": "ui64"}
"""Element types that the text of the npu level spells in another way."""

MODULE = """
builtin.module {{
  func.func @main({arguments}) {{
    npu.launch @k {operands} {{outputs = 0 : i64, workspaces = 0 : i64}} : ({types}) -> ()
    func.return
  }}
  npu.kernel @k {{grid = [{grid}], kind = "{kind}", outputs = 0, workspaces = 0}} {{
  ^bb0({coordinates}{kernel_arguments}):
    {body}
  }}
}}
"""


def read_only(
    shape: tuple[int, int],
    dtype: str,
    tile: tuple[int, int],
    cores: int,
    to_l1: bool,
    buffers: int,
    slices: int = 1,
    passes: int = 1,
    same: bool = False,
) -> str:
    """A kernel that copies a matrix tile by tile to ub or l1 and does nothing with it.

    The rows are split evenly over `cores` (`same`: every core reads all of them). The columns are cut into
    `slices`, and each slice is read `passes` times before the next one.
    """
    rows, cols = shape
    dtype = IR_TYPES.get(dtype, dtype)
    per_core = rows if same else -(-rows // cores)
    width = -(-cols // slices)
    kind, space, load = ("cube", "l1", "load_nd2nz") if to_l1 else ("vector", "ub", "load_nd")
    count = f", {buffers} slots" if buffers > 1 else ""
    buffer = f"!npu.buffer<{tile[0]}x{tile[1]}x{dtype}, {space}{count}>"
    one = f"!npu.buffer<{tile[0]}x{tile[1]}x{dtype}, {space}>"
    gm = f"!npu.gm<{rows}x{cols}x{dtype}>"
    trips = {"slice": slices, "pass": passes, "row": -(-per_core // tile[0]), "col": -(-width // tile[1])}
    core = "" if same else f"%g * {per_core} + "
    box = f"[{core}%row * {tile[0]}, %slice * {width} + %col * {tile[1]}]"
    slot = f"%s = npu.slot %b at [%col] : ({buffer}) -> {one}\n" if buffers > 1 else ""
    body = f"{slot}npu.{load} %x, {'%s' if slot else '%b'} at {box} {{sizes = [{tile[0]}, {tile[1]}]}} : ({gm}, {one})"
    for name in reversed(trips):
        body = f"scf.for %{name} = %zero to %n_{name} step %one {{\n{body}\n}}"
    constants = [f"%n_{name} = arith.constant {n} : index" for name, n in trips.items()]
    constants += ["%zero = arith.constant 0 : index", "%one = arith.constant 1 : index"]
    section = (
        f'npu.section {{core = "{kind}", units = 1}} {{\n^bb1(%u: index):\n'
        f"%b = npu.alloc : () -> {buffer}\n{body}\n}}"
    )
    return MODULE.format(
        arguments=f"%x: {gm}",
        operands="%x",
        types=gm,
        grid=cores,
        kind=kind,
        coordinates="%g: index",
        kernel_arguments=f", %x: {gm}",
        body="\n".join([*constants, section]),
    )


def repeated_vector_op(
    op: str, dtype: str, elements: int, times: int, addresses: tuple[int, int, int]
) -> str:
    """A kernel on one vector core that runs one two-operand instruction `times` times on fixed addresses."""
    buffer = f"!npu.buffer<{elements}x{IR_TYPES.get(dtype, dtype)}, ub>"
    first, second, out = addresses
    lines = [f"%x = npu.alloc {{address = {first} : i64}} : () -> {buffer}"]
    lines.append(f"%y = npu.alloc {{address = {second} : i64}} : () -> {buffer}")
    target = "%y" if out == second else "%x" if out == first else "%z"
    if target == "%z":
        lines.append(f"%z = npu.alloc {{address = {out} : i64}} : () -> {buffer}")
    body = f"npu.v{op} %x, %y, {target} : ({buffer}, {buffer}, {buffer})"
    section = (
        'npu.section {core = "vector", units = 1} {\n^bb1(%u: index):\n'
        + "\n".join(lines)
        + f"\nscf.for %i = %zero to %n step %one {{\n{body}\n}}\n}}"
    )
    constants = [f"%n = arith.constant {times} : index"]
    constants += ["%zero = arith.constant 0 : index", "%one = arith.constant 1 : index"]
    return MODULE.format(
        arguments="",
        operands="",
        types="",
        grid=1,
        kind="vector",
        coordinates="%g: index",
        kernel_arguments="",
        body="\n".join([*constants, section]),
    )

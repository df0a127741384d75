"""A program of the npu level without flags, whose buffers ask for more of them than a pair of pipes has."""

ROWS = 12
BUFFER = "!npu.buffer<64xf32, ub>"


def sums(buffers: int, rounds: int) -> str:
    """A kernel that adds ROWS rows of each of `rounds` blocks, brought one after the other into `buffers` buffers."""
    x, y = f"!npu.gm<{rounds * ROWS}x64xf32>", f"!npu.gm<{rounds}x64xf32>"
    lines = [f"%b{i} = npu.alloc : () -> {BUFFER}" for i in range(buffers)]
    lines += [f"%s = npu.alloc : () -> {BUFFER}", f"scf.for %j = %zero to %{rounds} step %one {{"]
    lines.append(f"npu.vfill %s {{value = 0.0 : f64}} : ({BUFFER})")
    for row in range(ROWS):
        b = f"%b{row % buffers}"
        lines.append(f"npu.load_nd %x, {b} at [%j * {ROWS} + {row}, 0] {{sizes = [1, 64]}} : ({x}, {BUFFER})")
        lines.append(f"npu.vadd %s, {b}, %s : ({BUFFER}, {BUFFER}, {BUFFER})")
    lines.append(f"npu.store_nd %s, %y at [%j, 0] {{sizes = [1, 64]}} : ({BUFFER}, {y})\n}}")
    body = "\n".join(lines)
    return f"""
func.func @main(%x: {x}) -> {y} {{
  %y = npu.gm_alloc : () -> {y}
  npu.launch @k %x, %y {{outputs = 1, workspaces = 0}} : ({x}, {y})
  func.return %y : {y}
}}
npu.kernel @k {{grid = [1], kind = "vector", outputs = 1, workspaces = 0}} {{
^bb0(%i: index, %x: {x}, %y: {y}):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %{rounds} = arith.constant {rounds} : index
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    {body}
  }}
}}
"""

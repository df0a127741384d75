"""A tour of the levels as a marimo notebook: `marimo edit examples/tour.py`, or `python examples/tour.py`."""

import marimo

app = marimo.App(width="medium", app_title="Tilewright: a tour of the levels")


@app.cell
def _():
    import jax
    import marimo as mo
    import numpy as np

    import tilewright as tw

    return jax, mo, np, tw


@app.cell
def _(mo):
    mo.md(
        """
        # Tilewright: a tour of the levels

        A JAX function becomes a program for an NPU in three levels of IR. Each can be read, run and timed.
        Change the shapes, the chip or the tile size and watch what changes.
        """
    )
    return


@app.cell
def _(mo, tw):
    rows = mo.ui.slider(64, 1024, value=512, step=64, label="rows of x", debounce=True)
    width = mo.ui.slider(128, 2048, value=512, step=128, label="width of the layer", debounce=True)
    target = mo.ui.dropdown(
        [n for n in tw.Machine.names() if n.startswith("ascend")], value="ascend-910b1", label="chip"
    )
    base_m = mo.ui.dropdown(
        {"free": None, "16": 16, "32": 32, "64": 64, "128": 128}, value="free", label="base_m"
    )
    mo.vstack([rows, width, target, base_m])
    return base_m, rows, target, width


@app.cell
def _(jax, np, rows, width):
    def layer(x, w, b):
        """A layer: a product, a bias and a gelu."""
        return jax.nn.gelu(x @ w + b)

    rng = np.random.default_rng(0)
    shapes = [(rows.value, 256), (256, width.value), (width.value,)]
    args = [(rng.standard_normal(s) / 16).astype(np.float16) for s in shapes]
    return args, layer


@app.cell
def _(args, base_m, layer, target, tw):
    pins = tw.Schedule() if base_m.value is None else tw.Schedule(base_m=base_m.value)
    program = tw.compile(layer, *args, target=target.value, options=tw.Options(schedule=pins))
    program
    return (program,)


@app.cell
def _(mo):
    mo.md(
        """
        ## Graph: whole tensors

        No machine yet. Ops that become one kernel stand in one `graph.fusion`.
        """
    )
    return


@app.cell
def _(mo, program):
    mo.plain_text(program.ir("graph"))
    return


@app.cell
def _(mo):
    mo.md(
        """
        ## Tile: a grid over cores, loops over tiles

        Each tile is in a named memory: `l1`, `l0a`, `l0b` and `l0c` of the cube core, `ub` of the vector core.
        """
    )
    return


@app.cell
def _(mo, program):
    mo.plain_text(program.ir("tile"))
    return


@app.cell
def _(mo):
    mo.md(
        """
        ## Npu: instructions

        Buffers have addresses, every op stands on a pipe, and flags order the pipes.
        """
    )
    return


@app.cell
def _(mo, program):
    mo.plain_text(program.ir("npu"))
    return


@app.cell
def _(args, layer, program, tw):
    check = tw.verify(layer, *args, program=program, quick=True)
    check
    return (check,)


@app.cell
def _(mo, program):
    report = program.report()
    mo.md(
        f"""
        ## What it costs

        {report.microseconds:.1f} us (modelled), bound by **{report.kernels[0].bound}**. The whole picture, with
        timelines and memory maps: `tilewright explain`.
        """
    )
    return (report,)


@app.cell
def _(report):
    report
    return


if __name__ == "__main__":
    app.run()

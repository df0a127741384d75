"""What the compiler does unless `--no-NAME` leaves it out: the options of `tw.Options` that are on without one."""

from __future__ import annotations

SWITCHES = {
    "fuse": "make each op a kernel of its own",
    "join": "start every kernel by a launch of its own, whatever it costs",
    "attention": "leave the products and the softmax of attention, and other chained products, kernels of their own",
    "turned": "leave the operands of products in memory as they are, whatever their loads cost",
    "widened": "leave the rows of operands of products as long as they are, wherever they begin in memory",
    "fractals": "leave the operands of products in rows, whatever their loads cost",
    "tails": "leave what reduces rows of a product, as a norm behind it, a kernel of its own",
    "pooling": "leave the windows that pool the result of a product a kernel of their own",
    "unit_flags": "let a drain wait until all sums of its product are made",
    "inline": "let kernels wait for rows that each could make itself, as the norm of one row",
    "stream_k": "leave the sums of products whole where the tiles of their results leave cores idle",
    "placed": "copy the parts of a concatenation to their places, whoever makes them",
    "ahead": "let kernels wait at a barrier before they load anything, weights as well",
}
"""The field of `tw.Options`, and what `--no-NAME` does."""

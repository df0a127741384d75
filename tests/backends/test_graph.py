"""What XLA simplifies in the graph level's code must not change what it gives."""

import jax
import numpy as np
import pytest
from jax import lax
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from tilewright.backends.interpreter import run_graph
from tilewright.dialects import make_context
from tilewright.frontends import lower_function


def test_slice_of_a_gather() -> None:
    """Both places are clamped, each by itself: a box of 3 that begins at 9 of 8 begins at 5."""
    numbers = lax.GatherDimensionNumbers((0, 1, 2), (), (1, 0, 2), (), ())

    def run(x: jax.Array, at: jax.Array, start: jax.Array) -> jax.Array:
        boxes = lax.gather(x, at, numbers, (1, 31, 3), mode=lax.GatherScatterMode.CLIP)
        return lax.dynamic_slice(boxes, (np.int8(0), np.int8(0), start), (1, 31, 1))

    x = np.random.default_rng(0).standard_normal((8, 31, 8)).astype(np.float16)
    for first, start, want in [(9, -4, 5), (9, 0, 5), (9, 2, 7), (0, 9, 2), (4, 1, 5)]:
        args = x, np.asarray([4, 9, first], np.uint32), np.int8(start)
        (got,) = run_graph(lower_function(run, args).module, *args)
        np.testing.assert_array_equal(got, x[7:, :, want : want + 1])


@pytest.mark.parametrize("callee", ["declared", "missing"])
def test_a_function_without_a_body_is_not_called(callee: str) -> None:
    text = f"""func.func private @declared(tensor<f32>) -> tensor<f32>
    func.func @main(%x: tensor<f32>) -> tensor<f32> {{
      %y = func.call @{callee}(%x) : (tensor<f32>) -> tensor<f32>
      func.return %y : tensor<f32>
    }}"""
    module = Parser(make_context(), text).parse_module()
    with pytest.raises(VerifyException, match=f"'func.call'.* calls .*{callee}.*, which does not exist"):
        run_graph(module, np.float32(1))

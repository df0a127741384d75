"""Initialisers as arguments: those whose values decide shapes stay constants."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import parsed

import tilewright as tw

HEAD = "g (float[n,2,3,4] x) => (float[a,b,c,d] y) <float[2,2,1,1] w = {1, 2, 3, 4}"

UPSAMPLES = {
    "scales": (", float[4] s = {1, 1, 2, 2}>", 'r = Resize<mode = "nearest">(h, , s)'),
    "scales of a cast": (
        ", double[4] s = {1, 1, 2, 2}>",
        'f = Cast<to = 1>(s) r = Resize<mode = "nearest">(h, , f)',
    ),
    "sizes that are computed in floats": (
        ", float[1] two = {2}, int64[2] from = {2, 4}, int64[1] zero = {0}>",
        """sh = Shape<start = 2>(h) f = Cast<to = 1>(sh) t = Mul(f, two) u = Floor(t) i = Cast<to = 7>(u)
        lead = Shape<end = 2>(h) z = Concat<axis = 0>(lead, i) r = Resize<mode = "nearest">(h, , , z)""",
    ),
}


@pytest.mark.parametrize("case", list(UPSAMPLES))
def test_factors_of_sizes_are_constants(case: str) -> None:
    weights, nodes = UPSAMPLES[case]
    model = parsed(f"{HEAD}{weights} {{ h = Conv(x, w) {nodes} y = Identity(r) }}", 18)
    fn = tw.onnx_function(model, weights_as_arguments=True)
    assert list(fn.weights) == ["w"]
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    h = np.einsum("nchw,oc->nohw", x, np.float32([[1, 2], [3, 4]]))
    want = h.repeat(2, 2).repeat(2, 3)
    np.testing.assert_array_equal(tw.compile(fn, x)(x), want)
    twice = {"w": 2 * fn.weights["w"]}
    np.testing.assert_array_equal(tw.compile(fn, x)(x, weights=twice), 2 * want)


def test_weights_of_what_depends_on_data_are_arguments() -> None:
    text = "g (float[4] x) => (float[n] y) <float[4] w = {1, 2, 3, 4}>"
    text += " { h = Mul(x, w) r = ReduceMax<keepdims = 0>(h) s = Cast<to = 7>(r)"
    text += " one = Constant<value_ints = [1]>() t = Reshape(s, one) y = Expand(x, t) }"
    fn = tw.onnx_function(parsed(text), weights_as_arguments=True)
    assert list(fn.weights) == ["w"]

"""What a program takes and gives: flat arrays in device memory, and the pytrees of JAX values around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .dialects.dtypes import name_of_numpy, numpy_dtype


class CompileError(Exception):
    """A program that cannot be compiled or called as asked: one sentence with the op and the place."""


@dataclass(frozen=True)
class Signature:
    """inputs: shape and element type of each flat input, as @main has them. in_tree, out_tree: the pytrees of a JAX
    function. keys: {flat output: name of the generator} for outputs that are random keys; in memory a key is
    the u32 words that `jax.random.key_data` gives."""

    inputs: tuple[tuple[tuple[int, ...], str], ...]
    in_tree: Any = None
    out_tree: Any = None
    keys: tuple[tuple[int, str], ...] = ()

    def flatten(self, name: str, args: Sequence[Any]) -> list[Any]:
        """The flat inputs in @main's order, of JAX's dtypes: an i64 array is an i32 input where JAX has no x64, a
        Python scalar has the dtype that it was traced with, a key is its words. Raises CompileError, which calls
        the program `name`, where they do not fit."""
        import jax

        if self.in_tree is None:
            flat = list(args)
        else:
            flat, tree = jax.tree.flatten(tuple(args))
            if tree != self.in_tree:
                raise CompileError(f"{name} was compiled for inputs {self.in_tree}, called with {tree}")
        if len(flat) != len(self.inputs):
            raise CompileError(f"{name} takes {len(self.inputs)} inputs, called with {len(flat)}")
        out = []
        for i, (value, (shape, dtype)) in enumerate(zip(flat, self.inputs, strict=True)):
            array = _array(value, numpy_dtype(dtype))
            if tuple(array.shape) != shape or array.dtype != numpy_dtype(dtype):
                got = f"{array.dtype.name}{list(array.shape)}"
                raise CompileError(f"input {i} of {name} must be {dtype}{list(shape)}, got {got}")
            out.append(array)
        return out

    def leaves(self, args: Sequence[Any]) -> list[Any]:
        """The flat inputs as they were passed."""
        import jax

        return list(args) if self.in_tree is None else jax.tree.leaves(tuple(args))

    def unflatten(self, flat: Sequence[Any]) -> Any:
        """The function's result from flat outputs."""
        import jax

        out = list(flat)
        for i, generator in self.keys:
            out[i] = jax.random.wrap_key_data(out[i], impl=generator)
        if self.out_tree is not None:
            return jax.tree.unflatten(self.out_tree, out)
        return out[0] if len(out) == 1 else tuple(out)


def signature_of(in_avals: Sequence[Any], out_avals: Sequence[Any], in_tree: Any, out_tree: Any) -> Signature:
    """The signature of a JAX function from its flat jax.ShapeDtypeStructs and its pytrees."""
    flat = [physical(a) for a in in_avals]
    keys = [(i, generator_of(a)) for i, a in enumerate(out_avals) if is_key(a)]
    inputs = tuple((tuple(a.shape), name_of_numpy(a.dtype)) for a in flat)
    return Signature(inputs, in_tree, out_tree, tuple(keys))


def is_key(value: Any) -> bool:
    """Whether an array, or its jax.ShapeDtypeStruct, is of random keys."""
    import jax

    return jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def physical(value: Any) -> Any:
    """An array as it is in memory, or the jax.ShapeDtypeStruct of one: keys become their u32 words."""
    import jax

    if not is_key(value):
        return value
    if isinstance(value, jax.ShapeDtypeStruct):
        return jax.eval_shape(jax.random.key_data, value)
    return jax.random.key_data(value)


def generator_of(aval: Any) -> str:
    """The name of the generator that keys belong to, for `jax.random.wrap_key_data`."""
    import jax

    found: list[str] = []

    def look(keys: Any) -> Any:
        found.append(str(jax.random.key_impl(keys)))
        return keys

    jax.eval_shape(look, aval)
    return found[0]


def _array(value: Any, want: Any) -> Any:
    """A leaf of the arguments as an array, of dtype `want` where JAX would take it for that."""
    import jax
    import numpy as np

    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        array = np.asarray(value)
        return array if array.dtype.kind in "fc" and want.kind in "biu" else array.astype(want)
    array = physical(value)
    if array.dtype == np.dtype(f"V{want.itemsize}"):  # how .npz files hold bf16 and f8
        return np.asarray(array).view(want)
    if array.dtype != want and jax.dtypes.canonicalize_dtype(array.dtype) == want:
        return np.asarray(array).astype(want)
    return array

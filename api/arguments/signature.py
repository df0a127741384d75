"""What a program takes and gives: flat arrays in device memory, and the pytrees of JAX values around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...dialects.dtypes import name_of_numpy, numpy_dtype
from ...dialects.sizes import LARGEST
from ...passes.errors import CompileError
from ...support.sentences import listed
from .calls import refuse_tracers
from .parameters import INPUTS, Parameters
from .tensors import as_array


def _keys(tree: Any) -> list[Any] | None:
    """The keys of the structure of a dict; None for another one."""
    data = tree.node_data()
    return list(data[1]) if data is not None and data[0] is dict else None


def alike(one: Any, other: Any) -> bool:
    """Whether two structures are the same, but for classes of named tuples with one name and the same fields, of which
    a model file has its own."""
    if one == other:
        return True
    own, others = one.node_data(), other.node_data()
    if own is None or others is None or (own != others and not _named_alike(own[0], others[0])):
        return False
    pairs = one.children(), other.children()
    return len(pairs[0]) == len(pairs[1]) and all(map(alike, *pairs))


def _named_alike(one: Any, other: Any) -> bool:
    """Whether two classes are of named tuples with one name and the same fields."""
    fields = getattr(one, "_fields", None)
    return fields is not None and fields == getattr(other, "_fields", None) and one.__name__ == other.__name__


def _other_structure(label: str, title: str, wanted: Any, given: Any) -> str:
    """Says where the argument `given` of a call is built otherwise than the one that a program was compiled for, whose
    structure is `wanted`."""
    import jax

    util = jax.tree_util
    tree, place = util.tree_structure(given), label
    while tree.node_data() == wanted.node_data() and tree.node_data() is not None:
        keyed = list(util.flatten_one_level_with_keys(given)[0])
        pairs = zip(wanted.children(), tree.children(), keyed, strict=False)
        differing = next((p for p in pairs if p[0] != p[1]), None)
        if differing is None:
            break
        wanted, tree, (key, given) = differing
        place += util.keystr((key,))
    whose = f"argument {place} of {title}"
    own, others = _keys(wanted), _keys(tree)
    if own is not None and others is not None and own != others:
        missing, further = [k for k in own if k not in others], [k for k in others if k not in own]
        said = [f"lacks {listed(missing)}"] if missing else []
        said += [f"has {listed(further)}, which it was compiled without"] if further else []
        return f"{whose} {' and '.join(said)}"
    shown = [str(t).removeprefix("PyTreeDef(").removesuffix(")") for t in (wanted, tree)]
    return f"{whose} was compiled for inputs {shown[0]}, called with {shown[1]} (*: an array)"


@dataclass(frozen=True)
class Signature:
    """inputs: shape and element type of each flat input, as @main has them. in_tree, out_tree: the pytrees of a JAX
    function, that of (args, kwargs) and of the result. parameters: what the arguments are called. keys: {flat output:
    name of the generator} for outputs that are random keys; in memory a key is the u32 words that
    `jax.random.key_data` gives. weak: flat outputs of a weak type, as 2.0 has in JAX. voids: flat outputs of float0,
    the gradients of integers; in memory they are bools."""

    inputs: tuple[tuple[tuple[int, ...], str], ...]
    in_tree: Any = None
    out_tree: Any = None
    keys: tuple[tuple[int, str], ...] = ()
    weak: tuple[int, ...] = ()
    voids: tuple[int, ...] = ()
    parameters: Parameters = INPUTS

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The path of each flat input, such as `params['w']`; its number where it has no name."""
        import jax

        if self.in_tree is None:
            return tuple(map(self.parameters.label, range(len(self.inputs))))
        numbered = jax.tree.unflatten(self.in_tree, range(len(self.inputs)))
        return tuple(self.parameters.path(path) for path, _ in jax.tree_util.tree_leaves_with_path(numbered))

    @property
    def least_results(self) -> int:
        """How many flat outputs there are, at least."""
        if self.out_tree is not None:
            return self.out_tree.num_leaves
        return 1 + max((*(i for i, _ in self.keys), *self.weak, *self.voids), default=-1)

    def place(self, i: int) -> str:
        """What messages call a flat input: `argument params['w']`."""
        return f"{self.parameters.noun} {self.names[i]}"

    @property
    def form(self) -> tuple[int, tuple[str, ...]]:
        """How many arguments are given by position, and which by keyword."""
        if self.in_tree is None:
            return len(self.inputs), ()
        by_position, by_keyword = self.in_tree.children()
        return len(by_position.children()), tuple(by_keyword.node_data()[1])

    def takes(self, name: str) -> bool:
        """Whether an argument has this name."""
        named = self.parameters
        return name in (*named.positional, *named.keyword, *named.static, *self.form[1])

    def flatten(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, given: Any = None
    ) -> list[Any]:
        """The flat inputs in @main's order, of JAX's dtypes: an i64 array is an i32 input where JAX has no x64, a
        Python scalar has the dtype that it was traced with, a key is its words. `given` stands for inputs that are not
        looked at. Raises CompileError, which calls the program `name`, where they do not fit."""
        out = []
        for i, (value, (shape, dtype)) in enumerate(
            zip(self.leaves(name, args, kwargs), self.inputs, strict=True)
        ):
            want = numpy_dtype(dtype)
            if given is not None and value is given:
                out.append(value)
                continue
            try:
                array = _array(value, want)
            except (TypeError, ValueError, OverflowError):
                raise self._misfit(name, i, described(value)) from None
            if tuple(array.shape) != shape or array.dtype != want:
                raise self._misfit(name, i, _shown(array, value))
            out.append(array)
        return out

    def _misfit(self, name: str, i: int, given: str) -> CompileError:
        shape, dtype = self.inputs[i]
        return CompileError(f"{self.place(i)} of {name} must be {dtype}{list(shape)}, got {given}")

    def check(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> None:
        """Raises CompileError where the types of arguments do not fit: arrays, or jax.ShapeDtypeStructs."""
        for i, (value, (shape, dtype)) in enumerate(
            zip(self.leaves(name, args, kwargs), self.inputs, strict=True)
        ):
            want, typed = numpy_dtype(dtype), hasattr(value, "shape") and hasattr(value, "dtype")
            try:
                aval = physical(_struct(value)) if typed else _array(value, want)
            except (TypeError, ValueError, OverflowError):
                raise self._misfit(name, i, described(value)) from None
            if (tuple(aval.shape), _narrowed(aval.dtype, want)) != (shape, want):
                raise self._misfit(name, i, _shown(aval, value))

    def leaves(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The flat inputs as they were passed. Raises CompileError, which calls the program `name`, for arguments of
        another structure."""
        import jax

        arguments = (tuple(args), dict(kwargs or {}))
        flat, tree = jax.tree.flatten(arguments)
        if self.in_tree is None or tree != self.in_tree:
            arguments = self.parameters.arranged(name, *self.form, arguments)
            if self.in_tree is None:
                refuse_tracers(name, flat, None)
                return list(arguments[0])
            flat, tree = jax.tree.flatten(arguments)
        refuse_tracers(name, flat, "tw.compile")
        if alike(tree, self.in_tree):
            return flat
        labels = [*map(self.parameters.label, range(self.form[0])), *self.form[1]]
        wanted = [child for part in self.in_tree.children() for child in part.children()]
        given = [*arguments[0], *arguments[1].values()]
        pairs = zip(labels, wanted, given, strict=True)
        label, one, other = next(p for p in pairs if not alike(p[1], jax.tree.structure(p[2])))
        raise CompileError(_other_structure(label, name, one, other))

    def unflatten(self, flat: Sequence[Any]) -> Any:
        """The function's result from flat outputs; extents of results, which come behind these, are left out."""
        import jax
        import numpy as np

        out = list(flat)
        for i, generator in self.keys:
            out[i] = jax.random.wrap_key_data(out[i], impl=generator)
        for i in self.weak:
            out[i] = _weakener(out[i].shape, out[i].dtype)(out[i])
        for i in self.voids:
            out[i] = np.zeros(out[i].shape, jax.dtypes.float0)
        if self.out_tree is not None:
            return jax.tree.unflatten(self.out_tree, out[: self.out_tree.num_leaves])
        return out[0] if len(out) == 1 else tuple(out)


def types_of(name: str, arguments: Any, parameters: Parameters) -> Any:
    """`arguments`, which are (args, kwargs), with arrays replaced by their types, so that a Program does not keep
    weights alive. A Python scalar stays weak: it takes the dtype of what it meets. Raises CompileError, which calls
    the program `name`, for a leaf that is no array."""
    import jax

    def place(path: Any) -> str:
        return f"argument {parameters.path(path)} of {name}"

    def struct(path: Any, leaf: Any) -> Any:
        try:
            found = _struct(leaf)
        except (TypeError, OverflowError) as error:
            raise CompileError(not_an_array(place(path), leaf, error)) from None
        for n in found.shape:
            if isinstance(n, int) and not 0 <= n <= LARGEST:
                raise CompileError(f"{place(path)} has a dimension of {n}: the smallest is 0, the largest {LARGEST}")
        return found

    return jax.tree_util.tree_map_with_path(struct, arguments)


def _struct(leaf: Any) -> Any:
    """The type of an array or a number, weak where it is a Python scalar. Raises TypeError and OverflowError."""
    import jax

    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    aval: Any = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def check_twin(
    name: str, results: Sequence[tuple[tuple[int, ...], str]], twin: str, reference: Sequence[Any]
) -> None:
    """Raises CompileError where the outputs of a program's `twin`, flat arrays, have other types than its `results`."""

    def shown(types: Sequence[tuple[tuple[int, ...], str]]) -> str:
        return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in types) or "nothing"

    given = [(tuple(a.shape), name_of_numpy(a.dtype)) for a in reference]
    if given != list(results):
        raise CompileError(f"{twin} gives {shown(given)}; to compare with, {name} needs {shown(results)}")


def _shown(array: Any, value: Any) -> str:
    """An array's type for messages, `f32[2, 3]`; where it is none of ours, what `value` is."""
    try:
        return f"{name_of_numpy(array.dtype)}{list(array.shape)}"
    except KeyError:
        return described(value)


def described(value: Any) -> str:
    """What an argument is, for messages: `a list`, `an array of <U3`."""
    import jax

    if isinstance(value, jax.ShapeDtypeStruct):
        return "a jax.ShapeDtypeStruct, which has no values"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of {value.dtype}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def signature_of(
    in_avals: Sequence[Any], out_avals: Sequence[Any], in_tree: Any, out_tree: Any, parameters: Parameters
) -> Signature:
    """The signature of a JAX function from its flat jax.ShapeDtypeStructs and its pytrees."""
    flat = [physical(a) for a in in_avals]
    keys = [(i, generator_of(a)) for i, a in enumerate(out_avals) if is_key(a)]
    inputs = tuple((tuple(a.shape), name_of_numpy(a.dtype)) for a in flat)
    weak = tuple(i for i, a in enumerate(out_avals) if a.weak_type)
    voids = tuple(i for i, a in enumerate(out_avals) if is_void(a))
    return Signature(inputs, in_tree, out_tree, tuple(keys), weak, voids, parameters)


def not_an_array(place: str, leaf: Any, error: Exception) -> str:
    """Says that `leaf`, which JAX refuses with `error`, cannot be an argument."""
    if isinstance(error, OverflowError):
        return f"{place} is {leaf}, which no integer of JAX's default type holds: give an array"
    kind = f"{type(leaf).__name__} of {leaf.dtype}" if hasattr(leaf, "dtype") else type(leaf).__name__
    return f"{place} is a {kind}: give an array, a number or a jax.ShapeDtypeStruct"


def is_key(value: Any) -> bool:
    """Whether an array, or its jax.ShapeDtypeStruct, is of random keys."""
    import jax

    return jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def is_void(value: Any) -> bool:
    """Whether an array, or its jax.ShapeDtypeStruct, is of float0: what JAX takes for derivatives of integers."""
    import jax

    return value.dtype == jax.dtypes.float0


@functools.cache
def _weakener(shape: tuple[int, ...], dtype: Any) -> Callable[[Any], Any]:
    """Gives an array as one of a weak type."""
    import jax

    aval = jax.ShapeDtypeStruct(shape, dtype, weak_type=True)
    return jax.jit(lambda x: x).lower(aval).compile()


def physical(value: Any) -> Any:
    """An array as it is in memory, or the jax.ShapeDtypeStruct of one: keys become their u32 words, float0 bools."""
    import jax
    import numpy as np

    if is_void(value):
        struct = isinstance(value, jax.ShapeDtypeStruct)
        return jax.ShapeDtypeStruct(value.shape, np.bool_) if struct else np.zeros(value.shape, np.bool_)
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

    if isinstance(value, jax.ShapeDtypeStruct):
        raise TypeError("it has no values")
    value = as_array(value)
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return _number(value, want)
    array = physical(value)
    if array.dtype == want or _narrowed(array.dtype, want) != want:
        return array
    made = np.asarray(array)
    return made.view(want) if _raw(array.dtype, want) else made.astype(want)


def _raw(dtype: Any, want: Any) -> bool:
    """Whether `dtype` is how .npz files hold `want`, bf16 or f8: bytes of no type."""
    import numpy as np

    return dtype == np.dtype(f"V{want.itemsize}")


def _narrowed(dtype: Any, want: Any) -> Any:
    """The dtype that an array of `dtype` has as an input of dtype `want`."""
    import jax

    if dtype == want or _raw(dtype, want):
        return want
    return jax.dtypes.canonicalize_dtype(dtype) if dtype.kind in "biufc" else dtype


def _number(value: Any, want: Any) -> Any:
    """A Python scalar, or a buffer, as an array of dtype `want` if that holds it; else of numpy's dtype for it."""
    import numpy as np

    array = np.asarray(value)
    if array.dtype.kind not in "biufc" or _rank(array.dtype) > _rank(want):
        return array
    with np.errstate(over="ignore"):
        made = array.astype(want)
    return array if _rank(want) == 1 and (made != array).any() else made


def _rank(dtype: Any) -> int:
    """Bools before integers, floats, complex numbers: each holds the numbers of those before."""
    if dtype.kind in "bc":
        return 0 if dtype.kind == "b" else 3
    return 1 if dtype.kind in "iu" or "int" in dtype.name else 2

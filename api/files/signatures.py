"""What a program takes and gives as plain data, and the values of arguments that are stored with it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...dialects.dtypes import name_of_numpy, numpy_dtype
from ...dialects.graph.stored import Give, Keep
from ...dialects.sizes import LARGEST
from ...support.typed_json import typed
from ..arguments.parameters import Parameters
from ..arguments.signature import CompileError, Signature, physical
from ..arguments.tensors import as_array
from .trees import structure_facts, structure_of


def signature_facts(signature: Signature, values: Mapping[str, Any], keep: Keep, name: str) -> dict[str, Any]:
    """A signature as JSON. values: what arguments are where a call leaves them out, whose bytes are kept; name:
    what messages call the program. Raises CompileError."""
    own = signature.parameters
    given = {**own.defaults, **values}
    defaults = {key: _value_facts(value, keep, f"{key} of {name}") for key, value in given.items()}
    return {
        "inputs": [[list(shape), dtype] for shape, dtype in signature.inputs],
        "in_tree": structure_facts(signature.in_tree, f"the arguments of {name}"),
        "out_tree": structure_facts(signature.out_tree, f"the results of {name}"),
        "keys": [list(each) for each in signature.keys],
        "weak": list(signature.weak),
        "voids": list(signature.voids),
        "parameters": {
            "positional": list(own.positional),
            "only": own.only,
            "variadic": own.variadic,
            "keyword": list(own.keyword),
            "static": list(own.static),
            "noun": own.noun,
        },
        "defaults": defaults,
    }


def _value_facts(value: Any, keep: Keep, what: str) -> dict[str, Any]:
    """A pytree of arrays as JSON, whose bytes are weights. Raises CompileError."""
    import jax

    leaves, tree = jax.tree.flatten(value)
    found = [array_facts(array_in(leaf, f"save: {what}"), keep, what) for leaf in leaves]
    return {"tree": structure_facts(tree, what), "leaves": found}


def array_facts(array: np.ndarray, keep: Keep, what: str) -> list[Any]:
    """An array as JSON, whose bytes are a weight. Raises CompileError for elements of another type, of which `what`
    is."""
    try:
        dtype = name_of_numpy(array.dtype)
    except (KeyError, ValueError):
        raise CompileError(f"save: {what} has {array.dtype}, which is no element type") from None
    return [list(array.shape), dtype, keep(dtype, array.shape, array.tobytes())]


def stored_array(facts: Sequence[Any], stored: Give) -> np.ndarray:
    """The array that `array_facts` has said, in the memory that its bytes are in. Raises ValueError, KeyError or
    TypeError for what is none."""
    shape, dtype, key = facts
    return np.frombuffer(stored(key).view, numpy_dtype(dtype)).reshape(shape)


def array_in(value: Any, what: str) -> np.ndarray:
    """A value as an array: random keys are their words. Raises CompileError, which begins with `what`, for one that was
    deleted or is none."""
    found = as_array(value)
    try:
        return np.asarray(physical(found) if hasattr(found, "dtype") else found)
    except (RuntimeError, TypeError, ValueError) as error:
        raise CompileError(f"{what} has a value that cannot be read: {' '.join(str(error).split())[:200]}") from None


def fitting(signature: Signature, weights: Mapping[str, Any], name: str, closed: bool) -> dict[str, Any]:
    """Those of some values that are arguments of a program. closed: whether it has no open sizes. Raises CompileError,
    which calls the program `name`, for one that a call would not take."""
    import jax

    count, keywords = signature.form
    labels = [signature.parameters.label(i) for i in range(count)]
    found = {key: jax.tree.map(as_array, weights[key]) for key in (*labels, *keywords) if key in weights}
    if found and closed:
        flat = [jax.ShapeDtypeStruct(shape, numpy_dtype(dtype)) for shape, dtype in signature.inputs]
        args, kwargs = (flat, {}) if signature.in_tree is None else jax.tree.unflatten(signature.in_tree, flat)
        try:
            signature.check(name, [found.get(label, arg) for label, arg in zip(labels, args, strict=True)],
                            {key: found.get(key, arg) for key, arg in kwargs.items()})  # fmt: skip
        except CompileError as error:
            raise CompileError(f"save: weights: {error}") from None
    return found


def signature_of(facts: Mapping[str, Any], stored: Give) -> Signature:
    """The signature that `signature_facts` has said. stored: gives the bytes of weights. Raises ValueError, KeyError,
    TypeError or AttributeError for what is none, or does not fit together."""
    own = facts["parameters"]
    texts = tuple[str, ...]
    parameters = Parameters(
        typed(texts, own["positional"]),
        typed(int, own["only"]),
        typed(str, own["variadic"]),
        typed(texts, own["keyword"]),
        typed(texts, own["static"]),
        typed(str, own["noun"]),
        _Defaults(facts["defaults"], stored),
    )
    numbers = tuple[int, ...]
    made = Signature(
        typed(tuple[tuple[tuple[int | str, ...], str], ...], facts["inputs"]),
        structure_of(facts["in_tree"]),
        structure_of(facts["out_tree"]),
        typed(tuple[tuple[int, str], ...], facts["keys"]),
        typed(numbers, facts["weak"]),
        typed(numbers, facts["voids"]),
        parameters,
    )
    _check_fits(made)
    for dtype, shape, key in values_in(facts).values():
        if min(shape, default=0) < 0 or len(stored(key)) != numpy_dtype(dtype).itemsize * math.prod(shape):
            raise ValueError(f"the weight {key[:80]!r} has another size than {dtype}{list(shape)}")
    return made


def _check_fits(made: Signature) -> None:
    """Raises ValueError or KeyError for a signature whose parts do not fit together."""
    for shape, dtype in made.inputs:
        numpy_dtype(dtype)  # which there has to be
        if not all(isinstance(n, str) or 0 <= n <= LARGEST for n in shape):
            raise ValueError("an input has a size that there is not")
    if (tree := made.in_tree) is not None:
        kinds = [part.node_data() or (None, ()) for part in (tree, *tree.children())]
        fits = [kind for kind, _ in kinds] == [tuple, tuple, dict]
        if not fits or not all(isinstance(key, str) for key in kinds[2][1] or ()):
            raise ValueError("its inputs are not arguments by position and by keyword")
        if tree.num_leaves != len(made.inputs):
            raise ValueError(f"{len(made.inputs)} inputs are said to be {tree.num_leaves}")
    if not all(0 <= i < made.least_results for i in (*(i for i, _ in made.keys), *made.weak, *made.voids)):
        raise ValueError("a result that it has not is said to be a key, weak or of float0")


def check_keys(kind: tuple[tuple[int, ...], str], generator: str) -> None:
    """Raises ValueError or TypeError where arrays of a type are no keys of a generator, or there is no such one."""
    import jax

    words = jax.ShapeDtypeStruct(kind[0], numpy_dtype(kind[1]))
    jax.eval_shape(lambda data: jax.random.wrap_key_data(data, impl=generator), words)


Weight = tuple[str, tuple[int, ...], str]
"""Element type, shape and SHA-256 of a weight."""


def values_in(facts: Mapping[str, Any]) -> dict[str, Weight]:
    """The arrays of arguments that have values, by their paths in these, such as `params['w']`, in order. Raises
    ValueError, KeyError, TypeError or AttributeError for what `signature_facts` has not said."""
    import jax

    found: dict[str, Weight] = {}
    for name, said in facts["defaults"].items():
        value = jax.tree.unflatten(structure_of(said["tree"]), range(len(said["leaves"])))
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(value)]
        for path, (shape, dtype, key) in zip(paths, said["leaves"], strict=True):
            numpy_dtype(dtype)  # which there has to be
            found[f"{name}{path}"] = dtype, typed(tuple[int, ...], shape), typed(str, key)
    return found


class _Defaults(Mapping[str, Any]):
    """Values of arguments, which are read when they are first asked for: arrays of JAX, in the memory that the file is
    mapped to. Each thread has its own, since a call deletes those that are donated to it."""

    def __init__(self, facts: Mapping[str, Any], stored: Give) -> None:
        self.facts, self.stored = facts, stored
        self._own = threading.local()

    def __getitem__(self, name: str) -> Any:
        import jax

        found: dict[str, Any] = vars(self._own)
        if any(leaf.is_deleted() for leaf in jax.tree.leaves(found.get(name))):
            del found[name]  # it was donated
        if name not in found:
            said = self.facts[name]
            with jax.enable_x64(True), jax.ensure_compile_time_eval():  # also where one is traced
                leaves = [jax.device_put(stored_array(each, self.stored)) for each in said["leaves"]]
            found[name] = jax.tree.unflatten(structure_of(said["tree"]), leaves)
        return found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

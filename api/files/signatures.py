"""What a program takes and gives as plain data, and the values of arguments that are stored with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...dialects.dtypes import name_of_numpy, numpy_dtype
from ...dialects.graph.stored import Give, Keep
from ..arguments.parameters import Parameters
from ..arguments.signature import CompileError, Signature
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
    arrays = [np.asarray(leaf) for leaf in leaves]
    found: list[Any] = []
    for array in arrays:
        try:
            dtype = name_of_numpy(array.dtype)
        except (KeyError, ValueError):
            raise CompileError(f"save: {what} has {array.dtype}, which is no element type") from None
        found.append([list(array.shape), dtype, keep(dtype, array.shape, array.tobytes())])
    return {"tree": structure_facts(tree, what), "leaves": found}


def signature_of(facts: Mapping[str, Any], stored: Give) -> Signature:
    """The signature that `signature_facts` has said. stored: gives the bytes of weights. Raises ValueError, KeyError,
    TypeError or AttributeError for what is none."""
    own = facts["parameters"]
    parameters = Parameters(
        tuple(own["positional"]),
        own["only"],
        own["variadic"],
        tuple(own["keyword"]),
        tuple(own["static"]),
        own["noun"],
        _Defaults(facts["defaults"], stored),
    )
    return Signature(
        tuple((tuple(shape), dtype) for shape, dtype in facts["inputs"]),
        structure_of(facts["in_tree"]),
        structure_of(facts["out_tree"]),
        tuple((number, name) for number, name in facts["keys"]),
        tuple(facts["weak"]),
        tuple(facts["voids"]),
        parameters,
    )


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
            found[f"{name}{path}"] = dtype, tuple(map(int, shape)), key
    return found


class _Defaults(Mapping[str, Any]):
    """Values of arguments, which are read when they are first asked for: arrays of JAX, in the memory that the file is
    mapped to."""

    def __init__(self, facts: Mapping[str, Any], stored: Give) -> None:
        self.facts, self.stored = facts, stored
        self.found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        import jax

        if any(leaf.is_deleted() for leaf in jax.tree.leaves(self.found.get(name))):
            del self.found[name]  # it was donated
        if name not in self.found:
            said = self.facts[name]
            with jax.enable_x64(True):
                leaves = [
                    jax.device_put(np.frombuffer(self.stored(key).view, numpy_dtype(dtype)).reshape(shape))
                    for shape, dtype, key in said["leaves"]
                ]
            self.found[name] = jax.tree.unflatten(structure_of(said["tree"]), leaves)
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

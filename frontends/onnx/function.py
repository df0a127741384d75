"""An ONNX model as a function of arrays, which JAX traces."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .deciding import deciding_initializers
from .errors import OnnxError
from .evaluation import evaluate, reference_name
from .reading import OnnxModel
from .values import as_traced, dtype_named
from .walk import NONE, NodeWalk

if TYPE_CHECKING:
    import onnx

SMALL = 256
"""Elements of an initialiser that stays a constant where weights are arguments: sizes, axes, scales of a tensor."""


class OnnxFunction:
    """What a model computes: `fn(*inputs)`, in the order of the model's inputs, by position or by name.

    With `weights_as_arguments` it has the keyword argument `weights`: a dict of the initialisers that are floats or
    have more than `SMALL` elements, and decide no shapes, by default those of the model. Otherwise they are constants.

    known: the values of inputs that decide shapes; the function does not take these.

    The result is an array where the model has one output, and a tuple of them otherwise; a sequence is a list.
    """

    def __init__(
        self, model: OnnxModel, known: Mapping[str, Any] | None = None, weights_as_arguments: bool = False
    ):
        self.x64 = True  # JAX traces it with 64-bit types, which ONNX has wherever sizes and indices are
        self.smallest_size = 0  # of an open dimension of an input
        self.model, self.known = model, dict(known or {})
        self.weights_as_arguments = weights_as_arguments
        self.__name__ = re.sub(r"\W+", "_", model.graph.name).strip("_") or "model"
        self.inputs = tuple(i for i in model.inputs if i.name not in self.known)
        self.__signature__ = self._signature()

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """The initialisers that are arguments."""
        if not self.weights_as_arguments:
            return {}
        found, sizes = self.model.initializers, deciding_initializers(self.model.graph)
        large = {n: v for n, v in found.items() if v.size > SMALL or v.dtype.kind not in "iub"}
        return {n: v for n, v in large.items() if n not in sizes}

    def _signature(self) -> inspect.Signature:
        names: list[str] = []
        taken = {"weights"} if self.weights_as_arguments else set()
        for one in self.inputs:
            name = identifier(one.name)
            while name in (*names, *taken):
                name += "_"
            names.append(name)
        made = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
        if self.weights_as_arguments:
            made.append(inspect.Parameter("weights", inspect.Parameter.KEYWORD_ONLY, default=None))
        return inspect.Signature(made)

    @property
    def default_arguments(self) -> dict[str, Any]:
        """What a program takes for arguments that a call leaves out."""
        return {"weights": self.weights} if self.weights_as_arguments else {}

    def with_known(self, values: Mapping[str, Any]) -> OnnxFunction:
        """The function of the other inputs, these being known."""
        return OnnxFunction(self.model, {**self.known, **values}, self.weights_as_arguments)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the nodes. Raises OnnxError."""
        import jax

        given, weights = self._given(args, kwargs)
        values: dict[str, Any] = {**self.model.initializers, **weights}
        values |= {name: _own(value) for name, value in self.known.items()}
        values |= {one.name: value for one, value in zip(self.inputs, given, strict=True)}
        origins = dict.fromkeys(values, NONE) | {i.name: frozenset([i.name]) for i in self.inputs}
        with jax.enable_x64(True):
            walk = NodeWalk(self.model)
            scope = walk.run(self.model.graph, values, origins)
            results = [as_traced(walk.sizes.traced(scope.find(name))) for name in self.model.outputs]
        for declared, result in zip(self.model.graph.output, results, strict=True):
            if isinstance(result, np.ndarray):
                raise OnnxError(f"{self.model.where}: the output {declared.name!r} is text, which no device has")
            self._check_output(declared, result)
        return results[0] if len(results) == 1 else tuple(results)

    def _check_output(self, declared: onnx.ValueInfoProto, result: Any) -> None:
        """Raises OnnxError where an output is of another element type or rank than the model says. Its sizes may be
        those of an earlier batch, which exporters leave there."""
        kind = declared.type.WhichOneof("value")
        is_list = isinstance(result, list)
        if kind != "tensor_type":
            if kind == "sequence_type" and not is_list:
                raise OnnxError(f"{self.model.where}: the output {declared.name!r} is no sequence, as the model says")
            return
        tensor = declared.type.tensor_type
        with self.model.reading(f"the type of the output {declared.name!r}"):
            said = dtype_named(tensor.elem_type) if tensor.elem_type else None
        if is_list or (said is not None and result is not None and result.dtype != said):
            found = "a sequence" if is_list else result.dtype
            raise OnnxError(
                f"{self.model.where}: the output {declared.name!r} is {found}, and {said or 'a tensor'} in the model: "
                "correct its type"
            )
        rank = len(tensor.shape.dim)
        if result is not None and tensor.HasField("shape") and rank != result.ndim:
            raise OnnxError(
                f"{self.model.where}: the output {declared.name!r} has {result.ndim} dimensions, and {rank} in the "
                "model: correct its type"
            )

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Mapping[str, Any]]:
        """The inputs of a call in their order, and the weights."""
        given = dict(self.__signature__.bind(*args, **kwargs).arguments)
        weights = given.pop("weights", None) if self.weights_as_arguments else None
        return list(given.values()), weights or {}

    @property
    def reference_name(self) -> str:
        """What computes `reference`."""
        return reference_name()

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """The results by another implementation: onnxruntime if it is installed, ONNX's own evaluator otherwise; as the
        function gives them. Raises OnnxError where that does not run the model."""
        given, weights = self._given(args, kwargs)
        inputs = {one.name: _plain(v) for one, v in zip(self.inputs, given, strict=True)}
        inputs |= {name: _plain(v) for name, v in self.known.items()}
        results = evaluate(self.model, inputs, {n: np.asarray(w) for n, w in weights.items()})
        return results[0] if len(results) == 1 else tuple(results)


def _plain(value: Any) -> Any:
    return [np.asarray(v) for v in value] if isinstance(value, list) else np.asarray(value)


def _own(value: Any) -> Any:
    return np.asarray(value) if hasattr(value, "dtype") else value


def identifier(name: str) -> str:
    """A name that Python takes for an argument."""
    made = re.sub(r"\W", "_", name)
    return made if made.isidentifier() else f"_{made}"

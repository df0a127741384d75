"""The nodes of a graph, run one after the other on values that JAX traces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dialects.text import ELEMENTS_LIMIT
from ..bounding import noting_firsts
from .bodies import OpBody, ScopedAttribute, body_of, body_of_function
from .data_sizes import DataSizes
from .errors import OnnxError, Unsupported, ValueNeeded
from .node import MOST_MADE, Node
from .number_ranges import NumberRanges
from .places import NodePlace, exported_from, located, shown_name, title
from .reading import OnnxModel, dense, graphs_of
from .table import Rule, own_domain, rule_of
from .values import as_traced, dtype_of, is_known, is_sizes, is_text, settled

if TYPE_CHECKING:
    import onnx

NONE: frozenset[str] = frozenset()

OPEN = frozenset([""])
"""Beside the inputs that a computed value depends on: it follows from open sizes, too, and is known where they are."""

MOST_KNOWN = 1 << 10
"""A node whose inputs are known, with no more elements in all, is computed where the model is traced, whatever its
rule: sizes may follow from it. Rules that fold compute what is known at once, however large."""

MOST_REPEATED = 1 << 15
"""Nodes that are run again while a model is traced, as those of loops are: some ten seconds."""

_BOUND = (
    "; if an open size has a bound, say so in the example inputs, as in "
    "jax.export.symbolic_shape('s', constraints=['s <= 64'])"
)
"""What may help where a size is the smaller one of two."""

REFUSALS = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    NotImplementedError,
    ZeroDivisionError,
    OverflowError,
    AttributeError,
    MemoryError,
    RecursionError,
)
"""What rules, numpy and JAX raise for operands and attributes that do not fit an op."""


def refusals() -> tuple[type[Exception], ...]:
    """The same, and what JAX raises where it cannot compare sizes."""
    from jax.errors import InconclusiveDimensionOperation, JaxRuntimeError

    return (*REFUSALS, InconclusiveDimensionOperation, JaxRuntimeError)


class NodeWalk:
    """Runs the graphs of a model. Which inputs each value depends on is kept beside it, so that a shape that is
    computed can name those that decide it."""

    def __init__(self, model: OnnxModel):
        self.model, self.sizes, self.ranges = model, DataSizes(), NumberRanges()
        self._opsets, self._random, self._count = model.opsets, 0, 0
        self._most = max(MOST_MADE, model.elements)
        self._around: NodePlace | None = None
        self._limit = MOST_REPEATED + 4 * model.nodes

    def run(
        self, graph: onnx.GraphProto, values: Mapping[str, Any], origins: Mapping[str, frozenset[str]]
    ) -> NodeScope:
        """The values of a graph after all its nodes, given those of its inputs and initialisers.

        Raises OnnxError where a node is refused, ValueNeeded where it needs the value of an input.
        """
        scope = NodeScope(dict(values), dict(origins))
        self.sizes = DataSizes(_symbolic_dim(values.values()))
        self.ranges = NumberRanges()
        self._run(graph.node, [v.name for v in graph.output], scope)
        return scope

    def _run(self, nodes: Sequence[onnx.NodeProto], results: Sequence[str], scope: NodeScope) -> None:
        """Runs nodes in order. results: the values that are kept."""
        last = _last_uses(nodes, results)
        for i, node in enumerate(nodes):
            self._node(node, i, scope)
            for name in last.get(i, ()):
                scope.values.pop(name, None)

    def _node(self, proto: onnx.NodeProto, i: int, scope: NodeScope) -> None:
        self._count += 1
        if self._count > self._limit:
            raise OnnxError(
                f"{self._label(proto)}: more than {self._limit:,} nodes are run, each step of a loop on its own: make "
                "the loops within each other fewer, or how often they run an input"
            )
        domain = own_domain(proto.domain)
        inputs = [scope.find(name) if name else None for name in proto.input]
        read = [n for n in proto.input if n] + _captured(proto)
        origins = frozenset().union(*(scope.origin(n) for n in read))
        found = any(map(self.sizes.is_open, inputs))
        if any(map(is_sizes, inputs)):
            origins |= OPEN
        label = self._label(proto)
        given = scope.attributes_of(proto)
        function = self.model.functions.get((domain, proto.op_type, proto.overload))
        rule = rule_of(domain, proto.op_type) if function is None else None
        place = self._place(proto, i)
        if rule is None:
            if function is not None:
                body = body_of_function(function, given)
            else:
                body = body_of(proto, domain, self._opsets, inputs, given)
            if body is None:
                name = f"{domain}.{proto.op_type}" if domain else proto.op_type
                raise OnnxError(f"{label} {_shapes(inputs)}is not supported: {name} has no rule")
            with self._inside(place if function is not None else replace(place, is_whole=True)):
                self._expand(body, proto, inputs, scope)
            return
        inputs = self._with_sizes(proto.op_type, domain, inputs)
        found = found or any(map(self.sizes.is_open, inputs))
        node = self._make(proto, given, domain, rule, inputs, scope, origins)
        try:
            with self._inside(place):
                made = self._build(rule, node, place)
        except Unsupported as error:
            raise OnnxError(f"{label} {_shapes(inputs)}is not supported: {error}") from None
        except refusals() as error:
            said = _sentence(error)
            hint = _BOUND if re.search(r"\b(min|max)\(", said) else ""
            raise OnnxError(
                f"{label} {_shapes(inputs)}cannot be converted{_attributes(node)}: {said}{hint}"
            ) from error
        results = list(made) if isinstance(made, tuple) else [made]
        kept, element = NONE if rule.of_shape and not found else origins, _element(node)
        for k, (name, value) in enumerate(zip(proto.output, results, strict=False)):
            if name:
                self._check_size(label, value)
                value = results[k] = scope.values[name] = settled(value, element)
                scope.origins[name] = kept - OPEN if is_known(value) else kept
        self.ranges.note(node, rule.folds, lambda own: rule.build(replace(node, inputs=own, xp=np), *own), results)

    def _with_sizes(self, op: str, domain: str, inputs: list[Any]) -> list[Any]:
        """Inputs in which numbers that decide shapes, and that the program computes within bounds, are sizes."""
        made = list(inputs)
        for i, value in enumerate(inputs if domain == "" else ()):
            found = self.ranges.deciding(op, i, inputs)
            if found is not None and not self.sizes.is_open(value):
                made[i] = self.sizes.sizes_of(value, found.low, found.high)
        return made

    @contextmanager
    def _inside(self, place: NodePlace) -> Iterator[None]:
        """Nodes that run meanwhile are parts of the node at a place."""
        saved, self._around = self._around, place
        try:
            yield
        finally:  # a rule may take a refusal within its body, and go on
            self._around = saved

    def _place(self, proto: onnx.NodeProto, i: int) -> NodePlace:
        """Where a node is: what its exporter noted, or its name and number in the model. Nodes of a graph within a node
        have the number of that, and its name before their own; those of what ONNX defines an op by are that op."""
        around, stack = self._around, exported_from(proto)
        if around is not None and around.is_whole:
            return around
        if stack is not None:
            return NodePlace(*stack, "")
        if around is None:
            return NodePlace(self.model.where, i + 1, shown_name(proto))
        if not around.name:
            return around
        return replace(around, name=f"{around.name}/{shown_name(proto).removeprefix('/')}")

    def _build(self, rule: Rule, node: Node, place: NodePlace) -> Any:
        """What a rule makes of a node, from a frame that has the node's place."""
        call = located(place, node.op)
        if not any(map(self.sizes.is_open, node.inputs)):
            return self._marked(call, rule, node)
        if not any(hasattr(a, "node") for a in node.attributes.values()):

            def build(own: list[Any]) -> Any:
                return self._plain(call, rule, replace(node, inputs=own, by_data=True))

            return self.sizes.run(node.inputs, build, refusals())
        if node.op not in ("Loop", "Scan") and any(self.sizes.is_open(v) and not is_sizes(v) for v in node.inputs):
            raise Unsupported("data decides a size of what it goes over")
        return self._marked(call, rule, replace(node, inputs=list(map(self.sizes.traced, node.inputs))))

    def _marked(self, call: Callable[..., Any], rule: Rule, node: Node) -> Any:
        """What a rule makes of inputs whose sizes data does not decide, and which sizes it decides of that."""
        with noting_firsts() as firsts:
            made = self._plain(call, rule, node)
        for k, value in enumerate(made if isinstance(made, tuple) else [made]):
            axes = {axis for x, axis in firsts if x is value}
            if any(node.open_results.values()) and not is_known(value) and not self.sizes.is_open(value):
                axes |= _axes_outside(node, k)
            if axes:
                self.sizes.mark(value, sorted(axes))
        return made

    def _plain(self, call: Callable[..., Any], rule: Rule, node: Node) -> Any:
        """What a rule makes: of known values at once. What is not decided of open sizes there, the program computes."""
        if node.xp is np:
            try:
                with np.errstate(all="ignore"):
                    return call(rule.build, node, node.inputs)
            except refusals():
                if not any(map(is_sizes, node.inputs)):
                    raise
            import jax.numpy as jnp

            node = replace(node, xp=jnp)
        if not _is_small(node.inputs):
            return call(rule.build, node, list(map(_given, node.inputs)))
        import jax

        def build() -> Any:
            return call(rule.build, node, list(map(_given, node.inputs)))

        drawn = self._random
        size = sum(n.size for n in jax.tree.leaves(jax.eval_shape(build)))
        self._random = drawn
        if not isinstance(size, int) or size > MOST_MADE:
            return build()
        with jax.ensure_compile_time_eval():
            made = build()
        return jax.tree.map(lambda v: np.asarray(v) if isinstance(v, jax.Array) else v, made)

    def _make(
        self,
        proto: onnx.NodeProto,
        attributes: Mapping[str, ScopedAttribute],
        domain: str,
        rule: Rule,
        inputs: list[Any],
        scope: NodeScope,
        origins: frozenset[str],
    ) -> Node:
        import jax.numpy as jnp
        from jax.errors import InconclusiveDimensionOperation

        folds = rule.folds and all(v is None or is_known(v) or _known_list(v) for v in inputs)
        folds = folds and self._is_bounded(inputs)

        def refuse(k: int) -> None:
            name = proto.input[k]
            origins_of = scope.origin(name)
            decides = f"{self._label(proto)} {_shapes(inputs)}decides shapes by the value of {name}"
            open_ = InconclusiveDimensionOperation(name) if origins_of == OPEN else None
            raise ValueNeeded(decides + _remedy(name, origins_of), origins_of - OPEN) from open_

        def body(graph: onnx.GraphProto, given: Sequence[Any], axes: Sequence[list[int]] | None = None) -> list[Any]:
            own = map(self.sizes.axes, inputs) if axes is None else axes  # a loop is given what its inputs become
            for value, found in zip(given, own, strict=False):
                if found and not is_known(value) and not self.sizes.is_open(value):
                    self.sizes.mark(value, found)
            made = list(map(self.sizes.traced, self._body(graph, given, homes.get(id(graph), scope), origins)))
            for k, value in enumerate(made):
                node.open_results.setdefault(k, set()).update(self.sizes.axes(value))
            return made

        values = {name: self._attribute(a.proto) for name, a in attributes.items()}
        homes = {id(values[name]): a.scope for name, a in attributes.items()}
        version = self._opsets.get(domain, 1)
        xp = np if folds else jnp
        node = Node(
            proto.op_type,
            version,
            values,
            inputs,
            list(proto.output),
            xp,
            body,
            refuse,
            self._key,
            lambda k: scope.origin(proto.input[k]) == OPEN,
            self._most,
            found_axes=lambda k: self.sizes.axes(inputs[k]),
            highest=lambda k: self._highest(inputs[k]),
            may_be_told=lambda k: self._may_be_told(scope.origin(proto.input[k]) - OPEN),
        )
        return node

    def _may_be_told(self, origins: frozenset[str]) -> bool:
        """Whether these are inputs of the model that are single numbers."""
        dims = [one.dims for one in self.model.inputs if one.name in origins]
        return bool(dims) and all(d is not None and all(n == 1 for n in d) for d in dims)

    def _highest(self, value: Any) -> int | None:
        """The most that a number is; None where it has no bound."""
        if is_sizes(value):
            most = [self.sizes.bound(n) for n in value.reshape(-1)]
            return max(most) if most and all(isinstance(n, int) for n in most) else None
        most = self.ranges.of(value).all().high
        return int(most) if np.isfinite(most) else None

    def _body(
        self, graph: onnx.GraphProto, given: Sequence[Any], outer: NodeScope | None, origins: frozenset[str]
    ) -> list[Any]:
        """The outputs of a graph within a node, which sees the values around it. origins: the inputs of the model that
        the values that it is given depend on."""
        names = [v.name for v in graph.input]
        if len(given) > len(names):
            raise Unsupported(f"its body takes {len(names)} inputs and is given {len(given)}")
        inner = NodeScope(dict(zip(names, given, strict=False)), dict.fromkeys(names, origins - OPEN), outer)
        for tensor in graph.initializer:
            inner.values.setdefault(tensor.name, self.model.array(tensor))
            inner.origins.setdefault(tensor.name, NONE)
        self._run(graph.node, [v.name for v in graph.output], inner)
        return [inner.find(v.name) for v in graph.output]

    def _expand(self, body: OpBody, proto: onnx.NodeProto, inputs: Sequence[Any], outer: NodeScope) -> None:
        """Runs the nodes that an op, or a function of the model, is defined by."""
        inner = NodeScope({}, {}, None, body.attributes)
        names = [*proto.input, *[""] * len(body.function.input)]
        values = [*inputs, *[None] * len(body.function.input)]
        for own, given, value in zip(body.function.input, names, values, strict=False):
            inner.values[own] = value
            inner.origins[own] = outer.origin(given) if given else NONE
        versions = {own_domain(o.domain): o.version for o in body.function.opset_import}
        saved, self._opsets = self._opsets, {**self._opsets, **versions}
        try:
            self._run(body.function.node, body.function.output, inner)
        finally:  # a rule may take a refusal within its body, and go on
            self._opsets = saved
        for own, given in zip(body.function.output, proto.output, strict=False):
            if given:
                outer.values[given], outer.origins[given] = inner.find(own), inner.origin(own)

    def _is_bounded(self, inputs: Sequence[Any]) -> bool:
        """Whether an elementwise function of known inputs, if that is what takes them, may be made at once."""
        arrays = [v for v in inputs if is_known(v)]
        if prod(v.size for v in arrays) <= self._most:
            return True
        try:
            return prod(np.broadcast_shapes(*(v.shape for v in arrays))) <= self._most
        except ValueError:
            return True

    def _check_size(self, label: str, value: Any) -> None:
        """Raises OnnxError for an array that no memory holds."""
        shape = getattr(value, "shape", ())
        count = prod(max(n, 1) for n in shape if isinstance(n, int))
        if count >= ELEMENTS_LIMIT:
            raise OnnxError(f"{label} gives an array of shape {list(shape)}: no memory holds {count} elements")

    def _label(self, proto: onnx.NodeProto) -> str:
        """What messages call a node."""
        return f"{self.model.where}: {title(proto)}"

    def _key(self) -> Any:
        """A key for the next op that draws numbers."""
        import jax

        self._random += 1
        return jax.random.key(self._random)

    def _attribute(self, proto: onnx.AttributeProto) -> Any:
        from onnx import helper

        if proto.HasField("t"):
            return self.model.array(proto.t)
        if proto.HasField("sparse_tensor"):
            return dense(proto.sparse_tensor, self.model.array)
        value = helper.get_attribute_value(proto)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            return [v.decode("utf-8", "replace") for v in value]
        return list(value) if proto.type in (proto.INTS, proto.FLOATS, proto.STRINGS) else value


class NodeScope:
    """Values by name, and which inputs of the model each depends on; names that are not here are those around."""

    def __init__(
        self,
        values: dict[str, Any],
        origins: dict[str, frozenset[str]],
        outer: NodeScope | None = None,
        attributes: Mapping[str, ScopedAttribute] | None = None,
    ):
        self.values, self.origins, self.outer = values, origins, outer
        self.attributes = attributes or {}

    def attribute(self, name: str) -> ScopedAttribute | None:
        """The attribute of the op that this is the body of, or within it; None where it is not given."""
        return self.attributes.get(name) if self.outer is None else self.outer.attribute(name)

    def attributes_of(self, node: onnx.NodeProto) -> dict[str, ScopedAttribute]:
        """The attributes of a node by name. One that refers to an attribute of the op around it is that attribute, and
        is left out where that is."""
        made = {}
        for attribute in node.attribute:
            refers = attribute.ref_attr_name
            found = self.attribute(refers) if refers else ScopedAttribute(attribute, self)
            if found is not None:
                made[attribute.name] = found
        return made

    def find(self, name: str) -> Any:
        """The value called so. Raises OnnxError where there is none."""
        if name in self.values:
            return self.values[name]
        if self.outer is None:
            raise OnnxError(f"the value {name!r} is used before it is computed")
        return self.outer.find(name)

    def origin(self, name: str) -> frozenset[str]:
        """The inputs of the model that a value depends on."""
        if name in self.origins:
            return self.origins[name]
        return NONE if self.outer is None else self.outer.origin(name)


def _axes_outside(node: Node, k: int) -> set[int]:
    """The dimensions of a node's result whose sizes data decides in its graphs. Raises Unsupported."""
    if node.op not in ("If", "Loop", "Scan"):
        raise Unsupported("data decides a size in its graph")
    loops = node.op == "Loop"  # whose graph gives a condition first
    inner = node.open_results.get(k + loops, set())
    states = len(node.inputs) - (2 if loops else node.get("num_scan_inputs", 0))
    collected = node.op != "If" and k >= states  # which gets a row
    if collected and inner and any(node.get("scan_output_axes") or ()):
        raise Unsupported("data decides a size of what it collects")
    return {axis + collected for axis in inner}


def _given(value: Any) -> Any:
    return value if is_text(value) else as_traced(value)


def _is_small(inputs: Sequence[Any]) -> bool:
    """Whether all inputs are known numbers, and few."""
    given = [v for v in inputs if v is not None]
    numbers = all(is_known(v) and np.asarray(v).dtype != object and not is_text(v) for v in given)
    return bool(given) and numbers and sum(v.size for v in given) <= MOST_KNOWN


def _symbolic_dim(values: Iterable[Any]) -> Any:
    """A symbolic size of arrays; None where there is none."""
    from jax import export

    dims = (n for v in values for n in getattr(v, "shape", ()))
    return next(filter(export.is_symbolic_dim, dims), None)


def _element(node: Node) -> np.dtype[Any]:
    """The type of sizes that a node gives, where its rule does not say it: that of the data that it takes."""
    data = node.input(1 if node.op == "Where" else 0)
    kind = np.dtype(np.int64) if data is None or isinstance(data, list) or is_text(data) else dtype_of(data)
    return kind if kind.kind in "iu" else np.dtype(np.int64)


def _known_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_known, value))


def _last_uses(nodes: Sequence[onnx.NodeProto], results: Sequence[str]) -> dict[int, list[str]]:
    """For each node by number, the values that no later one uses and that are no results: they need not be kept."""
    kept = set(results)
    last: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in (*node.input, *_captured(node)):
            last[name] = i
    made: dict[int, list[str]] = {}
    own = {name for node in nodes for name in node.output}
    for name, i in last.items():
        if name and name in own and name not in kept:
            made.setdefault(i, []).append(name)
    return made


def _captured(node: onnx.NodeProto) -> list[str]:
    """The names that graphs within a node use, some of which may be their own."""
    bodies = [a.g for a in node.attribute if a.HasField("g")]
    bodies += [g for a in node.attribute for g in a.graphs]
    graphs = [graph for body in bodies for graph in graphs_of(body)]
    used = [n for graph in graphs for inner in graph.node for n in inner.input if n]
    return used + [v.name for graph in graphs for v in graph.output]


def _remedy(name: str, origins: frozenset[str]) -> str:
    """What makes a value known that depends on inputs of the model."""
    if not origins:
        return ", which is computed, and no input: make it a constant of the model"
    if not (origins := origins - OPEN):
        return ", which follows from open sizes: give example inputs, whose sizes are numbers"
    whose, given = "", "its value"
    if name not in origins:
        inputs = " and ".join(sorted(origins))
        whose, given = f", which follows from {inputs}", f"the value of {inputs}"
    return f"{whose}: give {given}, as an example input that is an array, or make it a constant of the model"


def _sentence(error: Exception) -> str:
    """What an exception says, at most 300 characters: that of a look-up says no more than what it looked for."""
    said = " ".join(str(error).partition("\nThis error arises")[0].split())[:300]  # JAX adds a page
    if isinstance(error, KeyError) or not said:
        return f"{type(error).__name__} {said}".rstrip()
    return said


def _attributes(node: Node) -> str:
    """` with axis = 7, p = 2`: the attributes of a node that are numbers, text or short lists of them."""
    short = (bool, int, float, str)
    said = [
        f"{name} = {value!r}"[:60]
        for name, value in node.attributes.items()
        if isinstance(value, short) or (isinstance(value, list) and all(isinstance(v, short) for v in value))
    ]
    return f" with {', '.join(said[:8])}" if said else ""


def _shapes(inputs: Sequence[Any]) -> str:
    """`(f32[2,3], i64[2]) `: the types of a node's inputs."""
    said = ", ".join(map(_shape, inputs))
    return f"({said}) " if said else ""


def _shape(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    if is_text(value):
        return f"text[{','.join(map(str, value.shape))}]"
    return f"{dtype_of(value)}[{','.join(map(str, value.shape))}]"

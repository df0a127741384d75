"""Searches of peers for the best plan of matrix products, as rows of benchmarks/tuning_peers.py, which runs this file
in the interpreter that has the peers.

python benchmarks/peer_searches.py versions|zigzag|metaschedule < REQUEST.json

A request is `{"products": [[m, k, n], ...], "seconds": 30}`; each row is a line of JSON. This file imports nothing of
Tilewright.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from math import factorial, inf, prod
from pathlib import Path
from time import process_time
from typing import Any

Product = tuple[int, int, int]
"""Rows of the result, length of its sums, columns of it."""

PACKAGES = {"zigzag": "zigzag-dse", "metaschedule": "apache-tvm"}
"""The package of each peer."""

FACTORS = 6
"""Into how many factors zigzag-dse cuts the loops of a layer at most, unless it is said."""

ROUND = 16
"""Trials of MetaSchedule between two updates of its model: with its own 64 no budget here has a second round."""


@dataclass
class Row:
    """What a search did with one product.

    plans: how many there are, None where the tool does not say; evaluations: costs of plans, or bounds, that it asked
    for; seconds: of the processor; until_best: evaluations until the best one, 0 where
    there is none; proven: whether no plan of the space is better; first_worse: how much more the first plan costs than
    the best one, as a share of it.
    """

    search: str
    product: Product
    plans: int | None
    evaluations: int
    seconds: float
    until_best: int
    proven: bool
    first_worse: float | None


class Watch:
    """Counts what a search evaluates, until it has taken its seconds of the processor. used: what was taken until now,
    in seconds."""

    def __init__(self, seconds: float, used: Callable[[], float] = process_time) -> None:
        self.used, self.begin, self.seconds = used, used(), seconds
        self.evaluations = self.until_best = 0
        self.first: float | None = None
        self.best = inf

    @property
    def over(self) -> bool:
        return self.used() - self.begin >= self.seconds

    def add(self, cost: float) -> None:
        """A plan was evaluated."""
        self.evaluations += 1
        self.first = cost if self.first is None else self.first
        if cost < self.best:
            self.best, self.until_best = cost, self.evaluations

    def row(self, search: str, product: Product, plans: int | None, proven: bool) -> Row:
        """What was counted."""
        took = self.used() - self.begin
        worse = None if self.first is None else self.first / self.best - 1
        return Row(search, product, plans, self.evaluations, took, self.until_best, proven, worse)


def zigzag(products: Sequence[Product], seconds: float) -> Iterator[Row]:
    """Loop orders of zigzag-dse for its `ascend_like` chip, judged by cycles: with loops in at most FACTORS factors,
    and in all their prime factors."""
    import zigzag as package
    from onnx import TensorProto, helper
    from zigzag.mapping.temporal_mapping import TemporalMappingType
    from zigzag.opt.loma.engine import LomaEngine
    from zigzag.stages.evaluation.cost_model_evaluation import CostModelStage
    from zigzag.stages.main import MainStage
    from zigzag.stages.mapping.spatial_mapping_generation import SpatialMappingGeneratorStage
    from zigzag.stages.mapping.temporal_mapping_generator_stage import TemporalMappingGeneratorStage
    from zigzag.stages.parser.accelerator_parser import AcceleratorParserStage
    from zigzag.stages.parser.onnx_model_parser import ONNXModelParserStage
    from zigzag.stages.stage import Stage
    from zigzag.stages.workload_iterator import WorkloadStage

    class Counted(Stage):
        """Counts the loop orders of each spatial mapping, and the costs of those that are evaluated."""

        watch: Watch
        orders: int
        complete: bool

        def run(self) -> Iterator[Any]:
            given = self.kwargs
            names = {n: given[n] for n in ("accelerator", "layer", "spatial_mapping", "loma_lpf_limit")}
            engine = LomaEngine(**names, mapping_type=given["temporal_mapping_type"])
            engine.temporal_loop_dim_size = engine.get_temporal_loops()
            engine.update_min_lpf_factor(engine.temporal_loop_dim_size)
            engine.get_prime_factors()
            same = prod(map(factorial, Counter(engine.lpfs).values()))
            Counted.orders += factorial(len(engine.lpfs)) // same
            for cost, extra in self.list_of_callables[0](self.list_of_callables[1:], **given).run():
                if self.watch.over:
                    Counted.complete = False
                    return
                self.watch.add(cost.latency_total2)
                yield cost, extra

    def model(m: int, k: int, n: int) -> Any:
        def value(name: str, *shape: int) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape)

        node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
        inputs, outputs = [value("x", m, k), value("w", k, n)], [value("y", m, n)]
        return helper.make_model(helper.make_graph([node], "product", inputs, outputs))

    logging.disable(logging.WARNING)
    inputs = Path(package.__path__[0]) / "inputs"
    stages = [ONNXModelParserStage, AcceleratorParserStage, WorkloadStage, SpatialMappingGeneratorStage, Counted]
    for product in products:
        for limit in (FACTORS, None):
            Counted.watch, Counted.orders, Counted.complete = Watch(seconds), 0, True
            MainStage(
                [*stages, TemporalMappingGeneratorStage, CostModelStage],
                workload=model(*product),
                accelerator=str(inputs / "hardware" / "ascend_like.yaml"),
                mapping=str(inputs / "mapping" / "ascend_like.yaml"),
                loma_lpf_limit=limit,
                loma_show_progress_bar=False,
                nb_mappings_generated=3,
                temporal_mapping_type=TemporalMappingType.UNEVEN,
                access_same_data_considered_as_no_access=True,
            ).run()
            name = f"zigzag-dse, {limit or 'all'} factors"
            yield Counted.watch.row(name, product, Counted.orders, Counted.complete)


def metaschedule(products: Sequence[Product], seconds: float) -> Iterator[Row]:
    """Trials of MetaSchedule for this processor, by measured seconds: built here, and run in a process beside this one,
    as its own runner does it. Products are of float32."""
    import resource

    import psutil
    import tvm
    import tvm.s_tir.tensor_intrin  # what each process does once, and takes long
    from tvm import te
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.meta_schedule.builder.local_builder import default_build, default_export
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner, PyRunner

    def used() -> float:
        """Processor seconds of this process, and of those that it started."""
        left = resource.getrusage(resource.RUSAGE_CHILDREN)
        alive = [sum(c.cpu_times()[:4]) for c in psutil.Process().children(recursive=True)]
        return process_time() + left.ru_utime + left.ru_stime + sum(alive)

    class Spent(Exception):
        """The budget is."""

    watch = Watch(seconds, used)

    @derived_object
    class Builder(PyBuilder):
        def build(self, build_inputs: list[Any]) -> list[Any]:
            return [self.built(each) for each in build_inputs]

        def built(self, given: Any) -> Any:
            if watch.over:
                raise Spent
            try:
                return BuilderResult(default_export(default_build(given.mod, given.target, None)), None)
            except (RuntimeError, ValueError, TypeError) as error:  # TVM's own are of these
                return BuilderResult(None, str(error))

    @derived_object
    class Runner(PyRunner):
        def __init__(self) -> None:
            super().__init__()
            once = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=100)
            self.inner = LocalRunner(timeout_sec=seconds, evaluator_config=once)

        def run(self, runner_inputs: list[Any]) -> list[Any]:
            return [self.ran(each) for each in runner_inputs]

        def ran(self, given: Any) -> Any:
            if watch.over:
                raise Spent
            (future,) = self.inner.run([given])
            found = future.result().run_secs
            if found is not None:
                watch.add(float(found[0]))
            return future

    def function(m: int, k: int, n: int) -> Any:
        x, w = te.placeholder((m, k), "float32", name="x"), te.placeholder((k, n), "float32", name="w")
        axis = te.reduce_axis((0, k), name="axis")
        y = te.compute((m, n), lambda i, j: te.sum(x[i, axis] * w[axis, j], axis=axis), name="y")
        return te.create_prim_func([x, w, y])

    host = tvm.get_global_func("target.llvm_get_system_cpu")()
    target = tvm.target.Target({"kind": "llvm", "mcpu": str(host), "num-cores": 1})
    builder, runner = Builder(), Runner()
    for product in products:
        watch = Watch(seconds, used)
        with tempfile.TemporaryDirectory() as folder:
            try:
                ms.tune_tir(
                    function(*product),
                    target,
                    folder,
                    max_trials_global=sys.maxsize >> 32,
                    num_trials_per_iter=ROUND,
                    num_tuning_cores=1,
                    database="memory",
                    builder=builder,
                    runner=runner,
                    seed=0,
                )
            except (Spent, RuntimeError):  # TVM may hand on the former as the latter
                if not watch.over:
                    raise
        yield watch.row("MetaSchedule", product, None, False)


def versions() -> dict[str, str | None]:
    """The version of the package of each peer, None where it is not installed."""

    def found(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    return {peer: found(package) for peer, package in PACKAGES.items()}


PEERS: dict[str, Callable[[Sequence[Product], float], Iterator[Row]]] = {"zigzag": zigzag, "metaschedule": metaschedule}


def main(which: str) -> None:
    """Writes rows, or versions, to stdout; what peers print goes to stderr."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        if which == "versions":
            print(json.dumps(versions()), file=out)
            return
        request = json.load(sys.stdin)
        for row in PEERS[which]([(m, k, n) for m, k, n in request["products"]], request["seconds"]):
            print(json.dumps(asdict(row)), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

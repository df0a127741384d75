"""The commands of `tilewright`. Each takes the parsed arguments and gives the exit code."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...api.compiling import compile, lower, verify
from ...api.files.names import SUFFIX, named_file
from ...api.sizes.dynamic import DynamicProgram
from ...api.sources import input_types
from ...backends.legend import legend
from ...backends.trace import trace_text
from ...dialects.module import target_of
from ...machine import DEFAULT_TARGET
from ...support.precisions import ORIGIN
from ..build import (
    at_sizes,
    build,
    compiled,
    inputs_of,
    open_program,
    options_of,
    sizes_of,
    stages_of,
    user_of,
)
from ..common import STDIN, CliError, NothingJudged, finite, os_message, print_json, say, table, tell, working
from ..inputs import check_takes, random_inputs
from ..output import (
    print_culprit,
    print_flags,
    print_verification,
    verification_dict,
    write_program,
    write_reproducer,
)
from ..outputs import write_output
from ..source import SourceSpec, find_function, source_of, user_code
from ..targets import several, side_by_side
from . import inspect
from .autotune import autotune
from .cache import cache
from .calibrate import calibrate
from .checklist import checklist
from .completion import completion
from .debug import debug
from .diff import diff
from .export import export
from .files import inspect as inspect_file
from .files import verify_file
from .fleet import fleet
from .overflow import explain_overflow
from .pack import pack
from .quantize import quantize
from .saved import OPTIONS as FILE_OPTIONS
from .saved import save, update_file
from .serve_sim import serve_sim
from .sweep import sweep
from .tiers import tiers
from .tune import kb, tune
from .verify_file import verify_against

if TYPE_CHECKING:
    from ...api.program import Program
    from ...api.sizes.memory_pool import ProgramPool
    from ...backends.report import Report
    from ...verification.results import Verification


def _verify(
    args: argparse.Namespace, source: SourceSpec, inputs: Sequence[Any], **options: Any
) -> Verification:
    twin = None if args.against is None else find_function(args.against)
    user = twin or source
    if twin is not None:
        check_takes(twin, inputs)
        options["against"] = twin.fn
    with working(f"verifying {source.name}") as say, user_code(*user_of(user)):
        options["progress"] = lambda what, done, steps: say(f"verifying {source.name}: {what}", done, steps)
        return verify(source.compiled, *inputs, target=args.target, **options)


def run(args: argparse.Namespace) -> int:
    """Executes the npu level and sums up each output."""
    source, program, inputs = build(args, values=True)
    checked = args.check or args.against is not None
    # first, since the program deletes arrays that are donated to it
    check = _verify(args, source, inputs, program=program, quick=True) if checked else None
    with working(f"running {source.name}"), user_code(*user_of(source)):
        outputs = _describe_outputs(program(*inputs))
    if args.json:
        result: dict[str, Any] = {"source": args.source, "target": program.target, "memory": args.memory}
        result["outputs"] = outputs
        if check is not None:
            result["check"] = verification_dict(check)
        print_json(result)
    else:
        rows = [
            [
                o["name"],
                o["type"],
                *(_number(o[k]) for k in ("min", "max", "mean")),
                str(o["inf"]),
                str(o["nan"]),
            ]
            for o in outputs
        ]
        title = f"{source.name} for {program.target}, {args.memory} memory"
        table(title, ["output", "type", "min", "max", "mean", "inf", "nan"], rows)
        if check is not None:
            print_verification(check)
    if check is not None and not check.judged:
        lost = sum(o["inf"] + o["nan"] for o in outputs)
        if lost:
            say(
                f"{lost} numbers of the results are infinite or NaN: give smaller inputs, as with --scale 0.1"
            )
    return _exit_code(check)


def _exit_code(check: Verification | None) -> int:
    """0, 1 where a check failed, 3 where it judged nothing."""
    if check is None or (check.ok and check.judged):
        return 0
    return NothingJudged.code if check.ok else CliError.code


def report(args: argparse.Namespace) -> int:
    """Prints where the time goes, or what it costs for many sizes; and what calls take of a pool of device memory."""
    if args.pool_bytes is not None and args.pool is None:
        raise CliError("--pool-bytes is for --pool: give both")
    if args.sweep is not None:
        return sweep(args)
    if args.plot is not None:
        raise CliError("--plot draws what --sweep finds: give --sweep s=1..2048")
    chips = several(args)
    if chips:
        return _compared(args, chips)
    found, pool, hint = _priced(args)
    if args.json and pool is not None:
        print_json({**found.to_dict(), "pool": pool.to_dict()})
    elif args.json:
        print_json(found.to_dict())
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(found)
    else:
        print(found.table(200, borders=False), end="")
    if not args.json:
        print(f"judge: {found.judge}")
    if hint and not args.json:
        print(hint)
    if args.legend and not args.json:
        print(f"\n{legend()}")
    if pool is not None and not args.json:
        print(pool.table(200, borders=sys.stdout.isatty()), end="")
    return 0


def _compared(args: argparse.Namespace, chips: Sequence[str]) -> int:
    """What a program costs on several chips, side by side."""
    found: dict[str, Report] = {}
    source = source_of(args)
    for args.target in chips:
        found[args.target] = _priced(args)[0]
    if args.json:
        print_json({"source": args.source, "reports": [r.to_dict() for r in found.values()]})
    else:
        side_by_side(source.name, found)
    return 0


def _packing_hint(args: argparse.Namespace, program: Program) -> str:
    """One sentence on weights that each call converts, where they may be packed once; else nothing."""
    from ...api.quantized import named_module
    from ...passes.quantized.products_named import mark_weights, weight_patterns

    if args.weights is not None or (args.quant_config is None and args.precision == ORIGIN):
        return ""
    module, signature = named_module(program.origin.original or program.origin)
    packed = weight_patterns(signature.names, mark_weights(module))
    if not packed:
        return ""
    return f"each call converts the weights: {shlex.join(['--weights', ','.join(packed)])} packs them once"


def _priced(args: argparse.Namespace) -> tuple[Report, ProgramPool | None, str]:
    """What a program costs, with --pool what a call takes, and what else to try."""
    if args.pool is None:
        source, program, _ = build(args)
        with working(f"simulating {source.name}"):
            return program.report(), None, _packing_hint(args, program)
    source, program = open_program(args, "--pool", "its plan of device memory is static; ")
    sizes = sizes_of(args, program.open_source)
    with working(f"simulating {source.name}"), user_code(*user_of(source)):
        return program.report(at=sizes), program.replay([sizes]), ""


def verify_passes(args: argparse.Namespace) -> int:
    """Compares the values after every pass with the reference; with --bisect finds the cause."""
    source = source_of(args)
    if args.against is not None and named_file(args.source) is not None:
        return verify_against(args)
    inputs = inputs_of(args, source)
    if inputs is None:
        inputs = list(random_inputs(input_types(source.compiled), args.scale))
    options: dict[str, Any] = {"bisect": args.bisect, "options": options_of(args)}
    if args.min_sqnr is not None:
        if args.quant_config is None:
            raise CliError("--min-sqnr is for programs that --quant-config quantizes")
        options["min_sqnr"] = args.min_sqnr
    if args.stages is not None:
        options["stages"] = stages_of(args)
    found = _verify(args, source, inputs, **options)
    args.target = found.target
    files = None
    if found.culprit is not None and found.culprit.reproducer is not None:
        files = write_reproducer(args, found.culprit.reproducer, found.culprit.stage)
    flags = None
    if args.flags:
        with working(f"looking for flags that {source.name} does not need"):
            program = compile(source.compiled, *inputs, target=args.target, options=options["options"])
            flags = program.removable_flags()
    if args.json:
        result = {"source": args.source, "target": args.target, **verification_dict(found)}
        if flags is not None:
            result["removable_flags"] = [asdict(f) for f in flags]
        if files is not None:
            result["culprit"]["reproducer"] = files
        print_json(result)
    else:
        print_verification(found)
        print_culprit(found, files)
        if flags is not None:
            print_flags(flags)
    return _exit_code(found)


def trace(args: argparse.Namespace) -> int:
    """Writes the timeline."""
    source, program, _ = build(args)
    with working(f"simulating {source.name}"):
        text = trace_text(program.simulation())
    write_output(args.output, text)
    if args.output == STDIN:
        return 0
    if args.json:
        print_json({"source": args.source, "target": program.target, "output": args.output})
    else:
        tell(f"wrote {args.output}: open it in ui.perfetto.dev")
    return 0


def emit(args: argparse.Namespace) -> int:
    """Prints or writes the program at a level, or as a model file."""
    _check_onnx(args)
    if args.output is not None and args.output.endswith(SUFFIX):
        return save(args)
    program = _emitted(args)
    for name in FILE_OPTIONS:
        if getattr(args, name) is not None:
            raise CliError(f"--{name.replace('_', '-')} is for model files: give one, as in -o model{SUFFIX}")
    if args.emit == "onnx":
        return _as_onnx(args, program)
    with working(f"printing the {args.emit} level"):
        text = _printed(args, program)
    if args.output is not None:
        write_output(args.output, text)
    if args.output == STDIN:
        return 0
    if args.json:
        result = {"source": args.source, "target": program.target, "level": args.emit}
        print_json(result | ({"ir": text} if args.output is None else {"output": args.output}))
    elif args.output is None:
        print(text, end="")
    return 0


def _printed(args: argparse.Namespace, program: Program) -> str | bytes:
    """A program at the level that is asked for: bytes of StableHLO where they are written to a file for that."""
    if args.emit == "tw":
        return program.tw().rstrip() + "\n"
    if args.emit != "stablehlo":
        return program.ir(args.emit).rstrip() + "\n"
    from ...frontends import stablehlo_text

    artifact = program.to_stablehlo()
    return artifact if (args.output or "").endswith(".mlirbc") else stablehlo_text(artifact)


def _as_onnx(args: argparse.Namespace, program: Program) -> int:
    """Writes the graph level as an ONNX model."""
    from ...backends.onnx.saving import DATA, save

    with working(f"writing {args.output}"):
        model = program.to_onnx(opset=args.opset)
        try:
            apart = save(model, args.output, args.external_data)
        except OSError as error:
            raise CliError(os_message(error)) from None
    if args.json:
        result = {"source": args.source, "target": program.target, "level": args.emit, "output": args.output}
        print_json(result | ({"data": f"{args.output}{DATA}"} if apart else {}))
    return 0


def _check_onnx(args: argparse.Namespace) -> None:
    """Raises CliError where what is said of an ONNX model is said of something else, or it has no place."""
    if args.emit == "onnx" and (args.output in (None, STDIN) or args.output.endswith(SUFFIX)):
        raise CliError("--emit onnx writes a file: name it, as in -o model.onnx")
    if args.emit != "onnx" and (args.opset is not None or args.external_data):
        name = "--opset" if args.opset is not None else "--external-data"
        raise CliError(f"{name} is for ONNX models: give --emit onnx")


def _emitted(args: argparse.Namespace) -> Program:
    """What is printed: of open sizes the version for those of `--at`, or at the npu level the choice of one."""
    if args.emit == "tw" and args.source.endswith(".onnx"):
        args.weights_as_arguments = True  # as numbers in the text, nobody could read it
    source = source_of(args)
    program, inputs = compiled(args, source)
    if isinstance(program, DynamicProgram) and args.at is None and args.emit in ("npu", "stablehlo"):
        return program
    return at_sizes(args, source, program, inputs)[0]


def reduce_program(args: argparse.Namespace) -> int:
    """Writes the smallest program found that still shows what --check or --command asks for."""
    from ...verification.bisect import count_ops
    from ...verification.checks import parse_check
    from ...verification.reduce import TESTS, Reducer

    source = source_of(args)
    inputs = inputs_of(args, source)
    if inputs is None:
        inputs = list(random_inputs(input_types(source.compiled), args.scale))
    if args.tests is not None and args.tests < 1:
        raise CliError("--tests must be at least 1")
    stages = stages_of(args)
    with user_code(*user_of(source)):
        module, flat = lower(source.compiled, *inputs, target=args.target, options=options_of(args))
    args.target = args.target or target_of(module) or DEFAULT_TARGET
    try:
        check = parse_check(args.check, args.shell, args.target, stages)
    except ValueError as error:
        raise CliError(str(error)) from None
    before = count_ops(module)
    try:
        with working(f"reducing {source.name}") as say:
            reducer = Reducer(module, flat, check, args.tests or TESTS)
            reducer.progress = lambda what, done, steps: say(f"reducing {source.name}: {what}", done, steps)
            found = reducer.run()
    except ValueError as error:
        raise CliError(f"{args.source}: {error}") from None
    files = write_program(args, found.module, found.inputs)
    result = {
        "source": args.source,
        "target": args.target,
        "ops_before": before,
        "tests": found.tests,
        **files,
    }
    if args.json:
        print_json(result)
    else:
        print(f"{before} ops reduced to {files['ops']} in {found.tests} tests")
        tell(f"wrote {files['file']} and {files['inputs']}")
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run,
    "reduce": reduce_program,
    "debug": debug,
    "report": report,
    "verify": verify_passes,
    "trace": trace,
    "compile": emit,
    "export": export,
    "calibrate": calibrate,
    "quantize": quantize,
    "tune": tune,
    "checklist": checklist,
    "autotune": autotune,
    "serve-sim": serve_sim,
    "tiers": tiers,
    "kb": kb,
    "inspect": inspect_file,
    "verify-file": verify_file,
    "update": update_file,
    "diff": diff,
    "fleet": fleet,
    "pack": pack,
    "explain-overflow": explain_overflow,
    "explain": inspect.explain,
    "machines": inspect.machines,
    "ops": inspect.ops,
    "cache": cache,
    "completion": completion,
}


# -- output --------------------------------------------------------------------------------------------------


def _describe_outputs(outputs: Any) -> list[dict[str, Any]]:
    import jax
    import numpy as np

    from ...api.arguments.signature import physical
    from ...dialects.dtypes import name_of_numpy

    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(outputs)[0]:
        array = np.asarray(physical(leaf))
        dtype = name_of_numpy(array.dtype)
        values = array.astype(np.complex128 if dtype[0] == "c" else np.float64)
        real = np.abs(values) if dtype[0] == "c" else values
        known = real[np.isfinite(real)]
        empty, nan = known.size == 0, int(np.isnan(real).sum())
        found.append(
            {
                "name": jax.tree_util.keystr(path) or "out",
                "type": f"{dtype}[{','.join(map(str, array.shape))}]",
                "shape": list(array.shape),
                "dtype": dtype,
                "min": None if empty else finite(known.min()),
                "max": None if empty else finite(known.max()),
                "mean": None if empty else finite(known.mean()),
                "inf": int(real.size - known.size) - nan,
                "nan": nan,
            }
        )
    return found


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"

"""The grammar of `tilewright`'s command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ..backends.pool import POLICIES
from ..knowledge.goals import LATENCY, OBJECTIVES
from ..machine import DEFAULT_TARGET
from ..support.precisions import ORIGIN, PRECISIONS
from ..support.winograd import OFF
from .commands.checklist import add_parser as add_checklist
from .commands.debug import add_parser as add_debug
from .commands.diff import add_parser as add_diff
from .commands.export import add_parser as add_export
from .commands.files import add_files
from .commands.fleet import add_parser as add_fleet
from .commands.fmt import add_parser as add_fmt
from .commands.inspect import add_commands
from .commands.overflow import add_parser as add_overflow
from .commands.pack import add_parser as add_pack
from .commands.saved import add_options
from .commands.serve_sim import add_parser as add_serve_sim
from .commands.tiers import add_parser as add_tiers
from .common import OneLineParser
from .help import texts
from .secret import add_secret, add_trust
from .switches import add_switches

PROGRAM = "tilewright"


AGAINST = "a JAX function to compare a .tw or .mlir program with, which takes the same inputs"
OR_SOURCE = f"{AGAINST}; of a model file, any source, another file too"

AddCommand = Callable[[str, str], argparse.ArgumentParser]
"""Adds a command of a name, with a line of help, that takes a program."""


def _factor(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no finite number above 0")
    return value


def make_parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    common = _common()
    parser = OneLineParser(
        PROGRAM,
        description="Compiles JAX functions for NPUs and runs them on a model of the machine.",
        epilog="A Python file names example inputs for fn in a function fn_inputs(); --shapes replaces them.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=OneLineParser)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        usage = f"{PROGRAM} {name} SOURCE [options]"
        return commands.add_parser(
            name, usage=usage, help=help, description=help, parents=[common], **texts(name)
        )

    _add_run(command)
    report = command("report", "time, traffic and energy by kernel")
    report.add_argument(
        "--sweep",
        metavar="S=VALUES",
        help="a line for each value of an open size: s=1,2,4,8, s=1..2048 (16 of them) or s=64..2048:64",
    )
    report.add_argument("--legend", action="store_true", help="say below what the words of the table mean")
    report.add_argument("--plot", metavar="FILE.svg", help="draw time, memory and energy of a --sweep")
    report.add_argument(
        "--pool",
        nargs="?",
        choices=tuple(POLICIES),
        const="best-fit",
        help="what calls with these open sizes, in this order, take of a pool of device memory (default best-fit)",
    )
    report.add_argument(
        "--pool-bytes", metavar="N", help="how much memory the --pool has: 4096, 512K, 64M, 2G (default: all)"
    )
    _add_verify(command)
    _add_reduce(command)
    add_debug(command)
    _add_output(command)
    add_export(command)
    add_fmt(commands)
    _add_quantize(command)
    _add_tune(command)
    add_checklist(command)
    _add_autotune(command)
    add_serve_sim(command)
    add_tiers(commands)
    _add_kb(commands)
    _add_calibrate(commands)
    add_pack(commands)
    add_overflow(commands)
    add_commands(commands, command)
    add_files(commands)
    add_diff(commands)
    add_fleet(commands)
    return parser


def _common() -> OneLineParser:
    """What all commands take that take a program, in groups, which help shows behind the options of a command."""
    common = OneLineParser(add_help=False)
    inputs = common.add_argument_group("target and inputs")
    choices = common.add_argument_group("what is asked of the compiler")
    output = common.add_argument_group("output")
    common.add_argument(
        "source",
        metavar="SOURCE",
        help="model.py:function, model.tw[:function], an .onnx or an .mlir file; - is MLIR from stdin",
    )
    inputs.add_argument(
        "--target",
        metavar="T",
        help=f"chip, or a .toml (default: what an .mlir file says, else {DEFAULT_TARGET}); report takes several: a,b",
    )
    inputs.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="a figure that the chip has instead of its own: memory.hbm_tb_per_s=2.9 (`machines` lists them)",
    )
    inputs.add_argument(
        "--shapes",
        metavar="S",
        help="random inputs of these types: f32[8,128],i32[4]; or dimensions of a .tw function: N=8,M=64; open "
        "ones: f32[b,8*s], or N=8,T=?,S=1..2048",
    )
    inputs.add_argument(
        "--scale",
        type=_factor,
        default=1.0,
        metavar="X",
        help="what random floats are multiplied by (default: 1)",
    )
    inputs.add_argument(
        "--where", metavar="C", help="what holds of the symbols in --shapes: 's <= 2048, mod(s, 8) == 0'"
    )
    inputs.add_argument(
        "--at", metavar="SIZES", help="sizes of a program with open dimensions: b=4,s=128 (for its version)"
    )
    inputs.add_argument(
        "--inputs",
        metavar="NPZ",
        help="inputs from an .npz file, in its order; for a function of arrays, not of pytrees",
    )
    add_secret(inputs)
    add_trust(inputs)
    _choices(choices)
    choices.add_argument(
        "--config",
        metavar="FILE",
        help="a configuration of `tilewright autotune`, a .json file: its target, sizes and options",
    )
    choices.add_argument(
        "--plans",
        metavar="BASE",
        help="a knowledge base of `tilewright tune` (default: that of TILEWRIGHT_PLANS, or your own; '': no plans)",
    )
    choices.add_argument(
        "--plans-for",
        default=LATENCY,
        metavar="GOAL",
        help="what plans are good for: latency (default), energy, edp, or with a limit 'latency, 150 W'",
    )
    choices.add_argument(
        "--cache",
        metavar="DIR",
        help="keep compiled programs there across processes (default: in TILEWRIGHT_CACHE, if that is set)",
    )
    output.add_argument("--json", action="store_true", help="print one JSON object")
    output.add_argument("--quiet", action="store_true", help="do not say on stderr what takes its time")
    output.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return common


def _choices(group: argparse._ArgumentGroup) -> None:
    """What a command may ask of the compiler."""
    group.add_argument(
        "--schedule",
        metavar="PINS",
        default="",
        help="pinned tiling choices: base_m=128,split_n=6 or kernel:base_m=64;... (a wrong name lists all)",
    )
    group.add_argument(
        "--host",
        choices=("allow", "forbid"),
        default="allow",
        help="forbid: refuse a program that calls the host (default allow)",
    )
    group.add_argument(
        "--donate",
        metavar="ARGS",
        default="",
        help="arguments, by name or position, whose memory the program may use: params,opt_state or 0,-1",
    )
    group.add_argument(
        "--quant-config",
        metavar="C",
        help="quantize products: a .toml file of `tilewright quantize`, or a mode such as w8a8-dynamic",
    )
    group.add_argument(
        "--weights",
        metavar="ARGS",
        help="arguments that are weights, by name or pattern: what depends on them and on constants alone is computed "
        "once; '' for constants alone",
    )
    group.add_argument(
        "--weights-as-arguments",
        action="store_true",
        help="take the initializers of an .onnx model as an argument called weights, not as constants",
    )
    group.add_argument(
        "--launch",
        metavar="L",
        help="what a kernel of HIVM text is launched with: 'grid=(64,), n=262144'",
    )
    group.add_argument(
        "--triton",
        metavar="L",
        help="SOURCE is a Triton kernel, kernel.py:add, compiled for and launched with 'grid=(64,), n=262144, x=*f16'",
    )
    group.add_argument(
        "--triton-python",
        metavar="PATH",
        help="the Python that has triton-ascend, for --triton (default: TILEWRIGHT_TRITON_PYTHON)",
    )
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=ORIGIN,
        help="cast f32 products, and what is as good in a narrow type, to f16 or bf16; float16: all (default origin)",
    )
    add_switches(group)
    group.add_argument(
        "--winograd",
        metavar="CHOICE",
        default=OFF,
        help="convolutions with a window of 3 x 3 as Winograd's: off, 2, 4, auto, or NAME=CHOICE,... (default off)",
    )
    group.add_argument(
        "--strips",
        metavar="BYTES",
        help="the most bytes of a tensor in the strips in which what is large between products is made, such as the "
        "scores behind the gradient of attention; off: in one piece (default 32MiB)",
    )
    group.add_argument(
        "--memory-limit",
        metavar="BYTES",
        help="the most device memory that the program may take, such as 512MiB: values are computed again, or wait on "
        "the host, to keep it",
    )


def _add_run(command: AddCommand) -> None:
    run = command("run", "run the npu program and sum up its outputs")
    run.add_argument("--check", action="store_true", help="compare with JAX; exit code 1 where they differ")
    run.add_argument("--against", metavar="FILE.py:FN", help=f"{AGAINST}; implies --check")
    run.add_argument(
        "--memory",
        choices=("typed", "bytes", "step"),
        default="typed",
        help="arrays (default), addressed bytes, or one instruction at a time without XLA",
    )


def _add_verify(command: AddCommand) -> None:
    verify = command("verify", "compare the values after every pass with JAX; exit code 1 where they differ")
    verify.add_argument("--against", metavar="FILE.py:FN", help=OR_SOURCE)
    verify.add_argument(
        "--bisect", action="store_true", help="find the first bad pass, the op, tile and line"
    )
    verify.add_argument(
        "-o",
        "--output",
        default="reproducer.mlir",
        metavar="FILE",
        help="where --bisect writes the small program that fails (default reproducer.mlir)",
    )
    verify.add_argument(
        "--stages", metavar="FILE.py:NAME", help="passes to run instead: a sequence of pipeline stages"
    )
    verify.add_argument(
        "--min-sqnr",
        type=float,
        metavar="DB",
        help="with --quant-config, or --against of a model file: fail where the SQNR is below so many dB",
    )
    verify.add_argument(
        "--flags", action="store_true", help="list flags that are not needed, and their cycles"
    )


def _add_reduce(command: AddCommand) -> None:
    reduce = command("reduce", "make a program that fails smaller, as long as it fails")
    reduce.add_argument(
        "--check", metavar="WHAT", help="what must stay: wrong, crash, hazard, or 'cost>US' in microseconds"
    )
    reduce.add_argument(
        "--command",
        dest="shell",
        metavar="CMD",
        help="or: CMD, which a smaller program must keep exiting with 0; {} is its file",
    )
    reduce.add_argument(
        "-o",
        "--output",
        default="reduced.mlir",
        metavar="FILE",
        help="the program (default reduced.mlir), and its inputs beside it as .npz",
    )
    reduce.add_argument(
        "--stages", metavar="FILE.py:NAME", help="passes to run instead: a sequence of pipeline stages"
    )
    reduce.add_argument("--tests", type=int, metavar="N", help="candidates to try at most")


def _add_output(command: AddCommand) -> None:
    """The commands that write what a program becomes."""
    trace = command("trace", "write the timeline as Chrome/Perfetto JSON")
    trace.add_argument("-o", "--output", default="trace.json", metavar="FILE", help="default trace.json")
    emit = command("compile", "print the program at a level")
    levels = ("graph", "tile", "npu", "tw", "onnx", "stablehlo")
    emit.add_argument(
        "--emit",
        choices=levels,
        default="npu",
        help="default npu; tw: the graph as .tw text; onnx: as an ONNX model; stablehlo: what it was before, as text, "
        "or as a portable artifact where FILE ends with .mlirbc",
    )
    emit.add_argument("-o", "--output", metavar="FILE", help="write there instead of stdout; FILE.twm: a model file")
    add_options(emit)
    emit.add_argument("--opset", type=int, metavar="N", help="the version of ONNX's ops (default 27)")
    emit.add_argument(
        "--external-data", action="store_true", help="put the weights of an ONNX model into FILE.data beside it"
    )


def _add_quantize(command: AddCommand) -> None:
    parser = command(
        "quantize", "quantize the products of a program with example data; write the configuration"
    )
    parser.add_argument(
        "--data", metavar="D", help="batches: an .npz file of inputs (and labels), FILE.py:FN or MODULE:FN"
    )
    parser.add_argument("--mode", default="", metavar="M", help="the mode of all products (default w8a8)")
    parser.add_argument(
        "--search",
        default="",
        metavar="MODES",
        help="look for a mode of each product, from the most precise of these to the cheapest; with --max-drop or "
        "--plot and no --mode f16,w8a16,w8a8",
    )
    parser.add_argument(
        "--metric",
        default="sqnr",
        metavar="M",
        help="sqnr (default), cosine, accuracy, perplexity or FILE.py:FN",
    )
    parser.add_argument(
        "--max-drop",
        type=float,
        metavar="X",
        help="how far the metric may drop; without --mode, search for it",
    )
    parser.add_argument(
        "--pin",
        action="append",
        default=[],
        metavar="P=M",
        help="modes by patterns of argument paths or kernels: 'vision.*=i8,text.*=f16,conv_0=w8a16'",
    )
    parser.add_argument(
        "--method",
        default="auto",
        choices=("auto", "minmax", "ema", "percentile", "mse", "kl", "aciq"),
        help="how limits of inputs are found (default auto)",
    )
    parser.add_argument(
        "--recover",
        default="",
        metavar="STEPS",
        help="what makes up for the loss: equalize,smooth,awq,gptq,round,bias",
    )
    parser.add_argument("--plot", metavar="FILE.png", help="draw the front of a search")
    parser.add_argument("-o", "--output", default="quant.toml", metavar="FILE", help="default quant.toml")


def _add_tune(command: AddCommand) -> None:
    parser = command("tune", "search for the best plan of each kernel, and keep what was found")
    parser.add_argument("--budget", default="60s", metavar="T", help="how long at most: 300s, 5m (default 60s)")
    parser.add_argument(
        "--objective", default=LATENCY, choices=OBJECTIVES, help="what is to be least, or most (default latency)"
    )
    parser.add_argument("--power-limit", metavar="WATTS", help="the most that a launch may draw on the mean: 150W")
    parser.add_argument(
        "--profile", metavar="TRACE", help="what launches took: trace events, or op_summary.csv of msprof"
    )
    parser.add_argument(
        "--front", type=int, default=0, metavar="N", help="programs compiled between the fastest and the coolest"
    )
    parser.add_argument(
        "--oracle", metavar="CMD", help="who measures: 'measure {npu} {out}' writes {\"microseconds\": N}"
    )
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="S", help="seconds that --oracle may take (default 60)"
    )
    parser.add_argument(
        "--verify", type=int, default=24, metavar="N", help="plans of a kernel that are judged (default 24)"
    )
    parser.add_argument("--evaluations", type=int, metavar="N", help="prices and bounds of a kernel, at most")
    parser.add_argument(
        "--search", default="exact", metavar="S", help="exact (default), or genetic, tree, tpe, random: 300 plans"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what other searches draw")
    parser.add_argument(
        "--alternatives", type=int, default=0, metavar="N", help="programs compiled with decisions made otherwise"
    )
    parser.add_argument(
        "--explain", action="store_true", help="say of each kernel which bottleneck the better plan removed"
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the best price against the plans priced")
    parser.add_argument(
        "--workers", default="1", metavar="W", help="processes that search, or a Dask cluster: tcp://HOST:PORT"
    )


def _add_autotune(command: AddCommand) -> None:
    parser = command("autotune", "compile every configuration of a space; write the best one")
    parser.add_argument(
        "--space",
        nargs="+",
        action="extend",
        required=True,
        metavar="NAME=V,V",
        help="values of an open dimension, of batch (the first one), target, precision (f32, f16, bf16, int8) or an "
        "option: batch=1,4,8 precision=f16,int8 winograd=off,auto",
    )
    parser.add_argument(
        "--metric",
        choices=("latency", "throughput", "energy", "memory"),
        default="latency",
        help="what the best one is best in (default latency)",
    )
    parser.add_argument(
        "--data", metavar="D", help="batches to measure accuracy on: an .npz file of inputs (and labels), FILE.py:FN"
    )
    parser.add_argument(
        "--quality", default="sqnr", metavar="M", help="sqnr (default), cosine, accuracy, perplexity or FILE.py:FN"
    )
    parser.add_argument("--max-drop", type=float, metavar="X", help="how far the quality may drop")
    parser.add_argument(
        "--method",
        default="auto",
        choices=("auto", "minmax", "ema", "percentile", "mse", "kl", "aciq"),
        help="how limits of inputs are found for int8 (default auto)",
    )
    parser.add_argument("--power-limit", metavar="WATTS", help="the most mean power of a call: 150W")
    parser.add_argument(
        "-o", "--output", default="best_config.json", metavar="FILE", help="default best_config.json"
    )


KB_ACTIONS = ("list", "merge", "export", "import", "prune")


def _add_kb(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    text = "list, merge, export, import or remove plans of a knowledge base"
    base = commands.add_parser("kb", help=text, description=text, **texts("kb"))
    base.add_argument("action", choices=KB_ACTIONS)
    base.add_argument("base", nargs="?", metavar="BASE", help="the knowledge base (default: your own)")
    base.add_argument(
        "files", nargs="*", metavar="FILE", help="knowledge bases to merge; lines of JSON; fingerprints to prune"
    )
    base.add_argument("-o", "--output", metavar="FILE", help="export: write there instead of stdout")
    base.add_argument("--json", action="store_true", help="print one JSON object")
    base.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _add_calibrate(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    text = "published kernel times against the model's"
    calibrate = commands.add_parser("calibrate", help=text, description=text, **texts("calibrate"))
    calibrate.add_argument("records", metavar="RECORDS.json", help="records of measured kernels")
    calibrate.add_argument("--json", action="store_true", help="print one JSON object")
    calibrate.add_argument("--page", metavar="FILE.md", help="put the tables between the marks of a page")
    calibrate.add_argument("--plot", metavar="FILE.png", help="write a scatter plot")
    calibrate.add_argument("--debug", action="store_true", help="show the traceback of an error")

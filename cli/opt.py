"""`tilewright-opt`: xDSL's optimizer driver with our dialects and passes, and errors for people.

tilewright-opt model.mlir -p 'graph-simplify,graph-fuse,graph-to-tile,tile-to-npu'
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from io import StringIO
from typing import IO, NoReturn

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline, get_pass_option_infos
from xdsl.printer import Printer
from xdsl.universe import Universe
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ParseError, ShrinkException
from xdsl.xdsl_opt_main import xDSLOptMain

from ..frontends.added import FILE_TYPES, read_with
from ..frontends.errors import FrontendError
from ..machine import MachineError
from ..passes.errors import PassError
from ..passes.pipeline import PIPELINE, check_requirements, properties_of, without_need
from ..support.plugins import PluginError, entries
from .common import CliError, complain, os_message, quiet_pipe, short_warnings, suggestion, write_whole
from .universe import TILEWRIGHT_UNIVERSE

PROGRAM = "tilewright-opt"

DIAGNOSTICS = (DiagnosticException, PassError, FrontendError, MachineError, PluginError)
"""What the IR or a pass has to say about a program: one sentence each, printed by `--verify-diagnostics`."""

EXTENSIONS = ("mlir", "mlirbc")


class TilewrightOptMain(xDSLOptMain):
    """The driver. `run` raises CliError, ParseError or one of DIAGNOSTICS."""

    version_format = f"{PROGRAM} on xdsl {{xdsl_version}}"

    def __init__(self, args: Sequence[str] | None = None):
        self.universe = Universe.get_multiverse()
        super().__init__("Runs passes over the graph, tile and npu levels, or StableHLO.", args)

    # -- what there is ---------------------------------------------------------------------------------------

    def register_all_dialects(self) -> None:
        # Ours win over the same ones found through the entry point.
        for name, factory in (self.universe.all_dialects | TILEWRIGHT_UNIVERSE.all_dialects).items():
            self.ctx.register_dialect(name, factory)

    def register_all_passes(self) -> None:
        self.available_passes.update(TILEWRIGHT_UNIVERSE.all_passes)
        for name, factory in self.universe.all_passes.items():
            self.available_passes.setdefault(name, factory)

    def register_all_targets(self) -> None:
        self.available_targets.update(self.universe.all_targets)

    def register_all_frontends(self) -> None:
        for extension in EXTENSIONS:
            self.available_frontends[extension] = lambda io: self._read(io.read(), 1)
        for name, entry in entries("frontends", FILE_TYPES).items():
            self.available_frontends[name] = lambda io, e=entry: read_with(e, io.read(), self.get_input_name())

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        arg_parser.prog = PROGRAM
        arg_parser.error = _usage  # pyright: ignore[reportAttributeAccessIssue]  # as argparse's users do
        arg_parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        ours = ", ".join(TILEWRIGHT_UNIVERSE.all_passes)
        for action in arg_parser._actions:
            if action.dest == "passes":
                action.help = f"comma-separated passes: {ours}; and xDSL's, such as canonicalize, cse, dce"
            elif action.dest == "frontend":
                action.help = "format of the input, where the name of the file does not say it"
            elif action.dest == "disable_verify":
                action.help = "do not verify the program between passes"
            elif action.dest == "version":
                action.help = "print the version"
            elif action.dest == "output_file":
                action.help = "where to write (default stdout)"
            elif action.dest == "target":
                action.help = (
                    "output format (default mlir); chips go to passes, as in graph-fuse{target=ascend-310}"
                )

    # -- reading ---------------------------------------------------------------------------------------------

    def _read(self, content: bytes, first_line: int) -> ModuleOp:
        from ..dialects.text import parse_module
        from ..frontends.stablehlo import is_stablehlo, lower_stablehlo

        name = self.get_input_name()
        if is_stablehlo(content):
            return lower_stablehlo(content, name)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise CliError(f"{name}: neither text nor MLIR bytecode") from None
        return parse_module(self.ctx, text, name, first_line, not self.args.no_implicit_module)

    def parse_chunk(self, chunk: IO[bytes], file_extension: str, start_offset: int = 0) -> ModuleOp | None:
        if file_extension not in EXTENSIONS:
            return super().parse_chunk(chunk, file_extension, start_offset)
        try:
            return self._read(chunk.read(), start_offset + 1)
        except ParseError as error:
            error.span = dataclasses.replace(error.span, line_offset=start_offset)
            raise

    def prepare_input(self) -> tuple[list[tuple[IO[bytes], int]], str]:
        try:
            return super().prepare_input()
        except ValueError:
            name = self.args.input_file
            known = ", ".join(f".{e}" for e in (*EXTENSIONS, *entries("frontends", FILE_TYPES)))
            raise CliError(f"{name}: unknown file type; known are {known}") from None

    # -- running ---------------------------------------------------------------------------------------------

    def setup_pipeline(self) -> None:
        self.pipeline = PassPipeline(_passes(self.args.passes, self.available_passes), self._between())

    def _between(self) -> Callable[[ModulePass | None, ModuleOp, ModulePass | None], None]:
        started = time.perf_counter()
        stages = {stage.name: stage for stage in PIPELINE}
        established: set[str] = set()

        def callback(previous: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
            from ..dialects.text import verify

            nonlocal started
            if previous is None:  # another chunk
                established.clear()
            elif previous.name in stages:
                established.update(stages[previous.name].establishes)
            if self.args.time_passes and previous is not None:
                print(f"{previous.name}: {time.perf_counter() - started:.3f} s", file=sys.stderr)
            if not self.args.disable_verify:
                verify(module)
            if previous and following and self.args.print_between_passes:
                print(f"// after {previous.name}")
                Printer(stream=sys.stdout).print_op(module)
                print("\n")
            if following is not None and following.name in stages:
                have = established | properties_of(module) | without_need(module)
                check_requirements(stages[following.name], have)
            started = time.perf_counter()

        return callback

    def run(self) -> None:
        """Reads, transforms and writes every chunk; an output file appears only when all went well."""
        chunks, extension = self.prepare_input()
        whole = StringIO()
        for i, (chunk, offset) in enumerate(chunks):
            text = "// -----\n" if i else ""
            try:
                module = self.parse_chunk(chunk, extension, offset)
                if module is not None:
                    self.apply_passes(module)
                    text += self.output_resulting_program(module)
            except ParseError as error:
                if not self.args.parsing_diagnostics:
                    raise
                text += _caret(error) + "\n"
            except DIAGNOSTICS as error:
                if not self.args.verify_diagnostics:
                    raise
                text += f"error: {error}\n"
            finally:
                chunk.close()
            if self.args.output_file is None:
                sys.stdout.write(text)
                sys.stdout.flush()
            else:
                whole.write(text)
        if self.args.output_file is not None:
            write_whole(self.args.output_file, whole.getvalue())


def _usage(message: str) -> NoReturn:
    if "-t/--target" in message and "ascend" in message:
        message = "-t is the output format; a chip is given to a pass, as in graph-to-tile{target=ascend-310}"
    raise CliError(f"{message} (see {PROGRAM} --help)")


def _caret(error: ParseError) -> str:
    """`file:line:column: message`, the line and a caret under it."""
    line, caret = error.span.print_with_context().splitlines()[1:3]
    return f"{error.span.get_location()}: {' '.join(error.msg.split())}\n{line}\n{caret}"


def _passes(pipeline: str, available: dict[str, Callable[[], type[ModulePass]]]) -> tuple[ModulePass, ...]:
    """The passes of a pipeline's text. Raises CliError for names and options that do not exist."""
    try:
        specs = list(parse_pipeline(pipeline))
    except ArgSpecParseError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise CliError(f"cannot read the passes '{pipeline}': {reason}") from None
    return tuple(_pass(spec, available) for spec in specs)


def _pass(spec: ArgSpec, available: dict[str, Callable[[], type[ModulePass]]]) -> ModulePass:
    if spec.name not in available:
        hint = suggestion(spec.name, available) or f"; ours are {', '.join(TILEWRIGHT_UNIVERSE.all_passes)}"
        raise CliError(f"unknown pass '{spec.name}'{hint}")
    cls = available[spec.name]()
    options = {o.name.replace("_", "-"): o for o in get_pass_option_infos(cls)}
    for name in spec.parameters:
        if name.replace("_", "-") not in options:
            takes = f"its options are {', '.join(options)}" if options else "it has none"
            raise CliError(f"pass {spec.name} has no option '{name}'; {takes}")
    try:
        return cls.from_spec(spec)
    except ValueError as error:
        for name, values in spec.parameters.items():
            if str(tuple(values)) in str(error):
                wanted = options[name.replace("_", "-")].expected_type.strip("'")
                given = ",".join(map(str, values))
                raise CliError(
                    f"option '{name}' of pass {spec.name} must be {wanted}, not '{given}'"
                ) from None
        raise CliError(f"pass {spec.name}: {error}") from None


def main(args: Sequence[str] | None = None) -> int:
    """Runs the driver; 0, or 1 after an error."""
    given = list(sys.argv[1:] if args is None else args)
    try:
        with quiet_pipe(), short_warnings(PROGRAM):
            TilewrightOptMain(given).run()
        return 0
    except ShrinkException:
        return 0
    except Exception as error:
        if "--debug" in given:
            raise
        if isinstance(error, ParseError):
            print(_caret(error), file=sys.stderr)
        elif isinstance(error, OSError):
            complain(PROGRAM, os_message(error))
        elif isinstance(error, ModuleNotFoundError):
            package = (error.name or str(error)).partition(".")[0]
            complain(PROGRAM, f"this needs the Python package {package}, which is not installed")
        elif isinstance(error, (CliError, *DIAGNOSTICS)):
            complain(PROGRAM, str(error))
        else:
            complain(PROGRAM, f"internal error, {type(error).__name__}: {error} (--debug shows where)")
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""The driver behind `tilewright-opt`: reads, runs passes, prints, chunk by chunk, and says what is wrong with each."""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import IO, Any, NoReturn

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.printer import Printer
from xdsl.universe import Universe
from xdsl.utils.exceptions import ParseError, ShrinkException, VerifyException
from xdsl.xdsl_opt_main import xDSLOptMain

from ...dialects import BESIDE, vendor_dialects
from ...dialects.mlir_syntax import Arith, Scf, allow_semi_affine
from ...dialects.open_sizes import typical_sizes
from ...frontends.added import FILE_TYPES, read_with
from ...passes.errors import SeveralErrors, StateMissing
from ...support.plugins import entries
from ..common import (
    STDIN,
    CliError,
    check_plain,
    complain,
    os_message,
    quiet_pipe,
    read_stdin,
    short_warnings,
    unreadable,
)
from ..interrupt import interrupted
from ..outputs import OutputFiles, write_output
from ..universe import TILEWRIGHT_UNIVERSE
from .diagnostics import DIAGNOSTICS, Chunk, diagnostics_of
from .expectations import expectations, expects, mismatches
from .pass_specs import passes_of
from .timing import Timing

PROGRAM = "tilewright-opt"

EXTENSIONS = ("mlir", "mlirbc")

_STREAM = re.compile(r"/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")
"""Files that are open already, as a shell's `<(command)` is: read to their end, like stdin."""

_SEPARATOR = re.compile(rb"^[ \t]*// ------*[ \t]*\r?$", re.MULTILINE)


_HELP = {
    "frontend": "format of the input, where the name of the file does not say it",
    "disable_verify": "do not verify the program between passes",
    "version": "print the version",
    "output_file": "where to write (default stdout, as -); a file appears only where all went well",
    "input_file": ".mlir or .mlirbc file; - is stdin, as without any",
    "verify_diagnostics": "check errors against the comments `// expected-error @+1 {{text}}` of the file; in one "
    "without any, print them as a part of the output",
    "parsing_diagnostics": "the same for what cannot be parsed, in a file without such comments",
    "split_input_file": "take the parts between lines `// -----` for themselves",
    "target": "output format (default mlir); chips go to passes, as in graph-fuse{target=ascend-310}",
}
"""What xDSL's own options do, in our words."""


class TilewrightOptMain(xDSLOptMain):
    """The driver. `run` raises CliError, ParseError or one of DIAGNOSTICS."""

    version_format = f"{PROGRAM} on xdsl {{xdsl_version}}"

    def __init__(self, args: Sequence[str] | None = None):
        self.timing = Timing()
        self.running: ModulePass | None = None
        self.ran: list[str] = []
        self.expecting = False
        self.universe = Universe.get_multiverse()
        super().__init__("Runs passes over the graph, tile and npu levels, or StableHLO.", args)

    # -- what there is ---------------------------------------------------------------------------------------

    def register_all_dialects(self) -> None:
        # Ours win over the same ones found through the entry point, and over xDSL's.
        allow_semi_affine()
        ours = {dialect.name: lambda d=dialect: d for dialect in (Arith, Scf)} | vendor_dialects(BESIDE)
        for name, factory in (self.universe.all_dialects | TILEWRIGHT_UNIVERSE.all_dialects | ours).items():
            self.ctx.register_dialect(name, factory)

    def register_all_passes(self) -> None:
        self.available_passes.update(TILEWRIGHT_UNIVERSE.all_passes)
        for name, factory in self.universe.all_passes.items():
            self.available_passes.setdefault(name, factory)

    def register_all_targets(self) -> None:
        self.available_targets.update(self.universe.all_targets | TILEWRIGHT_UNIVERSE.all_targets)

    def register_all_frontends(self) -> None:
        for extension in EXTENSIONS:
            self.available_frontends[extension] = lambda io: self._read(io.read(), 1)
        for name, entry in entries("frontends", FILE_TYPES).items():
            self.available_frontends[name] = lambda io, e=entry: read_with(
                e, io.read(), self.get_input_name()
            )

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        arg_parser.prog = PROGRAM
        arg_parser.error = _usage  # pyright: ignore[reportAttributeAccessIssue]  # as argparse's users do
        arg_parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        arg_parser.add_argument(
            "--list-passes",
            action=_Listing,
            const="stages",
            help="list the pipeline: each pass, the level after it, the states it requires and establishes",
        )
        arg_parser.add_argument(
            "--list-patterns", action=_Listing, const="patterns", help="list the patterns of graph-simplify"
        )
        arg_parser.add_argument(
            "--list-alternatives",
            action=_Listing,
            const="alternatives",
            help="list what may be left out (graph-schedule{without=pooled}): each name, its passes, what is done",
        )
        arg_parser.add_argument(
            "--all",
            action="store_true",
            help="show every error of the verifier and of npu-check, not only the first",
        )
        arg_parser.add_argument(
            "--print-ir-after-all",
            "--mlir-print-ir-after-all",
            action="store_true",
            help="print the program to stderr after each pass",
        )
        arg_parser.add_argument(
            "--mlir-timing", action="store_true", help="print to stderr where the time goes"
        )
        ours = ", ".join(TILEWRIGHT_UNIVERSE.all_passes)
        said = _HELP | {"passes": f"comma-separated passes: {ours}; and xDSL's, such as canonicalize, cse, dce"}
        for action in arg_parser._actions:
            action.help = said.get(action.dest, action.help)

    # -- reading ---------------------------------------------------------------------------------------------

    def get_input_name(self) -> str:
        return "stdin" if self.args.input_file in (None, STDIN) else self.args.input_file

    def _read(self, content: bytes, first_line: int) -> ModuleOp:
        from ...dialects.text import parse_module
        from ...frontends.stablehlo import is_stablehlo, lower_stablehlo

        name = self.get_input_name()
        if is_stablehlo(content):
            # lines count from the beginning of the file
            padding = b"" if content.startswith(b"ML\xefR") else b"\n" * (first_line - 1)
            return lower_stablehlo(padding + content, name)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise CliError(f"{name}: neither text nor MLIR bytecode") from None
        return parse_module(self.ctx, text, name, first_line, not self.args.no_implicit_module)

    def _chunks(self) -> tuple[list[Chunk], str]:
        """The parts of the input, and its format. Raises CliError, OSError."""
        name = self.args.input_file
        extension = "mlir"
        if name in (None, STDIN):
            content = read_stdin()
        else:
            stream = _STREAM.fullmatch(name) is not None
            extension = "mlir" if stream else os.path.splitext(name)[1].removeprefix(".")
            if not stream:
                check_plain(name)
            with open(name, "rb") as file:
                if (self.args.frontend or extension) not in self.available_frontends:
                    known = ", ".join(f".{e}" for e in (*EXTENSIONS, *entries("frontends", FILE_TYPES)))
                    raise CliError(f"{name}: unknown file type; known are {known}")
                content = file.read()
        chunks, line = [], 1
        for part in _SEPARATOR.split(content) if self.args.split_input_file else [content]:
            chunks.append(Chunk(self.get_input_name(), part, line))
            line += part.count(b"\n")
        return chunks, self.args.frontend or extension

    def parse_chunk(self, chunk: IO[bytes], file_extension: str, start_offset: int = 0) -> ModuleOp | None:
        if file_extension not in EXTENSIONS:
            return super().parse_chunk(chunk, file_extension, start_offset)
        try:
            return self._read(chunk.read(), start_offset + 1)
        except ParseError as error:
            error.span = dataclasses.replace(error.span, line_offset=start_offset)
            raise

    # -- running ---------------------------------------------------------------------------------------------

    def setup_pipeline(self) -> None:
        passes = passes_of(self.args.passes, self.available_passes, list(TILEWRIGHT_UNIVERSE.all_passes))
        self.pipeline = PassPipeline(passes, self._between())

    def _between(self) -> Callable[[ModulePass | None, ModuleOp, ModulePass | None], None]:
        started = time.perf_counter()

        def callback(previous: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
            nonlocal started
            self.running = None
            if previous is None:  # another chunk
                self.ran.clear()
            else:
                self.timing.add(previous.name, time.perf_counter() - started)
                self.ran.append(previous.name)
                if self.args.time_passes:
                    print(f"{previous.name}: {time.perf_counter() - started:.3f} s", file=sys.stderr)
                if self.args.print_ir_after_all:
                    _dump(module, previous.name)
            if not self.args.disable_verify:
                with self.timing.phase("Verifier"):
                    self._verify(module)
            if previous and following and self.args.print_between_passes:
                print(f"// after {previous.name}")
                Printer(stream=sys.stdout).print_op(module)
                print("\n")
            self.running = following
            started = time.perf_counter()

        return callback

    def _verify(self, module: ModuleOp) -> None:
        from ...dialects.text import complaints, verify

        try:
            verify(module)
        except VerifyException:
            found = list(complaints(module)) if self.args.all or self.expecting else []
            if len(found) > 1:
                raise SeveralErrors(found) from None
            raise

    def apply_passes(self, prog: ModuleOp) -> None:
        try:
            super().apply_passes(prog)
        except SeveralErrors as error:
            raise error.blaming(tuple(self.ran)) from None
        except StateMissing:
            raise
        except Exception:
            if self.args.print_ir_after_all and self.running is not None:
                _dump(prog, f"{self.running.name} Failed")
            raise

    def run(self) -> int:
        """Reads, transforms and writes every chunk; 1 where one has errors. An output file appears only when all went
        well."""
        output = None if self.args.output_file == STDIN else self.args.output_file
        outputs = OutputFiles([] if output is None else [output], read=[self.args.input_file or STDIN])
        outputs.check()
        with outputs.writing():
            return self._run(output)

    def _run(self, output: str | None) -> int:
        chunks, extension = self._chunks()
        self.expecting = self.args.verify_diagnostics and any(expects(chunk.content) for chunk in chunks)
        texts = []
        failed = False
        for i, chunk in enumerate(chunks):
            text, wrong = self._process(chunk, extension)
            failed |= wrong
            text = f"// -----\n{text}" if i else text
            if output is None:
                with self.timing.phase("Output"):
                    sys.stdout.write(text)
                    sys.stdout.flush()
            else:
                texts.append(text)
        if output is not None and not failed:
            with self.timing.phase("Output"):
                write_output(output, "".join(texts))
        return int(failed)

    def _process(self, chunk: Chunk, extension: str) -> tuple[str, bool]:
        """What a chunk becomes, and whether it has errors that were not asked for; these are printed."""
        try:
            text, error = self._transform(chunk, extension), None
        except (OSError, ShrinkException, ModuleNotFoundError):
            raise
        except Exception as problem:
            if self.args.debug or interrupted():
                raise
            text, error = "", problem
        if self.expecting:
            said = [] if error is None else list(diagnostics_of(error, chunk))
            wrong = list(mismatches(expectations(chunk), said, chunk))
            for diagnostic in wrong:
                diagnostic.show(PROGRAM)
            return text, bool(wrong)
        if isinstance(error, ParseError) and self.args.parsing_diagnostics:
            return "".join(f"{d.stated()}\n" for d in diagnostics_of(error, chunk)), False
        if isinstance(error, DIAGNOSTICS) and self.args.verify_diagnostics:
            return f"error: {error}\n", False
        if error is not None:
            self._show(error, chunk)
        return text, error is not None

    def _transform(self, chunk: Chunk, extension: str) -> str:
        with self.timing.phase("Parser"):
            module = self.parse_chunk(io.BytesIO(chunk.content), extension, chunk.first_line - 1)
        if module is None:
            return ""
        self.running = None
        self.apply_passes(module)
        with self.timing.phase("Output"):
            return self.output_resulting_program(module)

    def _show(self, error: Exception, chunk: Chunk) -> None:
        """Prints the error of a chunk: with --all each fault of several."""
        if not isinstance(error, (ParseError, *DIAGNOSTICS)):
            complain(PROGRAM, message_of(error))
            return
        found = list(diagnostics_of(error, chunk))
        if len(found) > 1 and not self.args.all:
            hint = f" (and {len(found) - 1} more, which --all shows)"
            found = [dataclasses.replace(found[0], message=found[0].message + hint)]
        for diagnostic in found:
            diagnostic.show(PROGRAM)


def _dump(module: ModuleOp, what: str) -> None:
    """Prints a module to stderr, headed as mlir-opt heads it."""
    sys.stdout.flush()
    print(f"// -----// IR Dump After {what} //----- //", file=sys.stderr)
    Printer(stream=sys.stderr).print_op(module)
    print("\n", file=sys.stderr, flush=True)


class _Listing(argparse.Action):
    """Prints the `listing` of a module of the passes, which is its `const`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, nargs=0, **kwargs)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(import_module(f"...passes.{self.const}", __package__).listing())
        parser.exit()


def _usage(message: str) -> NoReturn:
    if "-t/--target" in message and "ascend" in message:
        message = "-t is the output format; a chip is given to a pass, as in graph-to-tile{target=ascend-310}"
    raise CliError(f"{message} (see {PROGRAM} --help)")


def message_of(error: Exception) -> str:
    """An error that is not about a line of the program, as one sentence."""
    if isinstance(error, OSError):
        return os_message(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or str(error)).partition(".")[0]
        return f"this needs the Python package {package}, which is not installed"
    if (said := unreadable(error)) is not None:
        return said
    if isinstance(error, RecursionError):
        return "the program is nested too deeply"
    if isinstance(error, (CliError, *DIAGNOSTICS)):
        return str(error)
    return f"internal error, {type(error).__name__}: {error} (--debug shows where)"


def drive(given: Sequence[str]) -> int:
    """Runs the driver on a command line; 0, or 1 after an error."""
    driver = None
    try:
        with quiet_pipe(), short_warnings(PROGRAM), typical_sizes():
            driver = TilewrightOptMain(given)
            return driver.run()
    except ShrinkException:
        return 0
    except SystemExit as ended:  # what only lists something is done once its arguments are read
        return ended.code if isinstance(ended.code, int) else 0
    except Exception as error:
        if "--debug" in given or interrupted():
            raise
        complain(PROGRAM, message_of(error))
        return 1
    finally:
        if driver is not None and driver.args.mlir_timing:
            print(driver.timing.table(), file=sys.stderr)

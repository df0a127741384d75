"""The vendor's compiler, as the package `ascendnpuir` brings it: where it is, and running it with an end."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION, PACKAGE = "ascendnpu-ir", "ascendnpuir"
VERSIONS = "1.2"
"""The versions that the exporter was tried on: this and what follows a dot behind it."""

SECONDS = 60.0
"""After how long a run counts as hanging; the longest one seen takes 1.5."""

SPEC = "hacc-append-device-spec{{target={target}}}"
TAIL = (
    "builtin.module(" + SPEC + ","
    "func.func(hivm-init-entry-kernel,hivm-lower-to-loops,hivm-decompose-op),lower-memref-ext,"
    "func.func(hivm-add-ffts-to-syncblocksetop,hivm-enable-multi-buffer,hivm-lift-lowest-stride),"
    "annotation-lowering,convert-hivm-to-std)"
)
"""The passes of the vendor's pipeline behind its planning of memory and flags, both of which are ours here."""

SOLVED = "hivm-graph-sync-solver"
"""The pass behind which a kernel has addresses and flags."""

FROM_ADAPTER = (
    "--enable-hfusion-compile=true",
    "--enable-hivm-compile=true",
    "--enable-triton-kernel-compile=true",
    "--enable-auto-multi-buffer=True",
    "--enable-auto-bind-sub-block=True",
    f"--enable-{SOLVED}=true",
    "--mlir-disable-threading",
    "--mlir-print-ir-module-scope",
    f"--mlir-print-ir-after={SOLVED}",
)
"""Options with which the driver compiles what Triton's adapter makes, and prints it with addresses and flags."""

HANDED_OVER = "module.hivm.opt.mlir"
"""The file with what the last step, `hivmc` of CANN, is given."""


class ToolError(Exception):
    """A tool of the vendor is missing, of another version, refuses a text, crashes or hangs; one sentence."""


@dataclass(frozen=True)
class VendorTools:
    """The folder with the vendor's programs."""

    folder: Path
    seconds: float = SECONDS

    @staticmethod
    def find() -> VendorTools:
        """Raises ToolError where the package is not installed, or of a version that was not tried."""
        spec = find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ToolError(
                f"the vendor's compiler is not installed: pip install 'tilewright[hivm]' "
                f"({DISTRIBUTION}=={VERSIONS}.*)"
            )
        try:
            found = version(DISTRIBUTION)
        except PackageNotFoundError:
            found = "unknown"
        if found != VERSIONS and not found.startswith(f"{VERSIONS}."):
            raise ToolError(f"{DISTRIBUTION} is of version {found}; the export was tried on {VERSIONS}.*")
        return VendorTools(Path(spec.submodule_search_locations[0]) / "bin")

    def passes(self, pipeline: str, text: str) -> str:
        """A module after passes of the vendor. Raises ToolError."""
        return self._run("bishengir-opt", ["-", f"--pass-pipeline={pipeline}"], text).stdout

    def tail(self, text: str, target: str) -> str:
        """A module with addresses and flags, lowered as far as the vendor's pipeline has it before its last part."""
        return self.passes(TAIL.format(target=target), text)

    def hand_over(self, text: str, target: str, folder: Path) -> str:
        """What the vendor's last step is given for a lowered module; files go to a folder. Raises ToolError."""
        source = folder / "kernel.mlir"
        source.write_text(text)
        arguments = [
            str(source),
            f"--target={target}",
            "--enable-hivm-compile=false",
            f"--save-temps={folder}",
        ]
        found = self._run(
            "bishengir-compile", [*arguments, "-o", str(folder / "kernel.o")], None, refusing=True
        )
        result = folder / HANDED_OVER
        if not result.is_file():
            raise ToolError(f"bishengir-compile does not come to its last step: {_first_error(found.stderr)}")
        return result.read_text()

    def from_adapter(self, text: str, target: str) -> str:
        """HIVM with addresses and flags of what Triton's adapter makes. Raises ToolError."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "kernel.mlir"
            source.write_text(text)
            arguments = [str(source), f"--target={target}", *FROM_ADAPTER, "-o", str(Path(folder) / "kernel.o")]
            said = self._run("bishengir-compile", arguments, None, refusing=True).stderr
        dumps = re.split(r"(?m)^// -----// IR Dump After .*$", said)
        module = re.search(r"(?ms)\A.*?^}\s*$", dumps[-1]) if len(dumps) > 1 else None
        if module is None:
            raise ToolError(f"bishengir-compile does not come to addresses and flags: {_first_error(said)}")
        return module[0].strip()

    def _run(
        self, tool: str, arguments: Sequence[str], text: str | None, refusing: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """refusing: whether an exit code other than 0 is no error."""
        program = self.folder / tool
        try:
            done = subprocess.run(
                [str(program), *arguments],
                input=text,
                capture_output=True,
                text=True,
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"{tool} hangs: it was stopped after {self.seconds:g} seconds") from None
        except OSError as error:
            raise ToolError(f"{tool} cannot be run: {error.strerror or error}") from None
        if done.returncode < 0:
            raise ToolError(f"{tool} crashes with signal {-done.returncode}: {_first_error(done.stderr)}")
        if done.returncode and not refusing:
            raise ToolError(f"{tool} refuses the text: {_first_error(done.stderr)}")
        return done


def _first_error(said: str) -> str:
    """The first line of a tool's output that tells an error, without the place."""
    for line in said.splitlines():
        if re.search(r"\berror\b|assert|LLVM ERROR", line, re.IGNORECASE):
            return re.sub(r"^.*?error: ", "", line).strip()[:300]
    return "it says nothing of an error"

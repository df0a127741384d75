"""Runs in another Python, with triton-ascend: gives what its adapter makes of a kernel. It imports nothing of ours.

Reads a request as JSON from the standard input, and writes the answer as one line of JSON to the standard output, where
nothing else goes: what the kernel's file prints is on the standard error.

    {"file": "kernel.py", "function": "add", "types": {"x": "*fp32", "n": "i32"}, "values": {"B": 4096}, ...}
    {"version": "3.2.0", "text": "module {...}", "arguments": ["x", "n"]}, or {"error": "a sentence"}
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

DISTRIBUTION = "triton-ascend"
ADAPTER = "triton-adapter-opt"
OLDER = "compile-on-910-95=False"
PASSES = (
    f"--discrete-mask-access-conversion={OLDER} force-simt-template=False",
    "--triton-to-annotation",
    f"--triton-to-unstructure={OLDER} force-simt-template=False",
    "--triton-to-hivm",
    "--triton-to-hfusion",
    "--triton-to-llvm",
    "--bubble-up-operation",
    "--triton-to-linalg=global-kernel=false named-ops=True enable-nd2nz-on-vector=False "
    f"enable-select-analysis=True {OLDER}",
)
"""The passes of the adapter, as the vendor's backend runs them for chips of the 910B family."""


class Refusal(Exception):
    """Why there is no answer, a sentence."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What is answered to a request: a dictionary. Raises Refusal."""
    try:
        version = importlib.metadata.version(DISTRIBUTION)
        triton = importlib.import_module("triton")
    except importlib.metadata.PackageNotFoundError:
        raise Refusal(f"{sys.executable} has no {DISTRIBUTION}") from None
    except ImportError as error:
        raise Refusal(f"{DISTRIBUTION} of {sys.executable} cannot be imported: {error}") from None
    if not version.startswith(request["versions"]):
        raise Refusal(f"{DISTRIBUTION} of {sys.executable} is {version}; {request['versions']}* was tried")
    kernel = kernel_of(triton, request["file"], request["function"])
    names: list[str] = list(kernel.arg_names)
    constants: dict[str, Any] = {}
    signature: dict[str, str] = {}
    for name, parameter in inspect.signature(kernel.fn).parameters.items():
        if "constexpr" in str(parameter.annotation):
            value = request["values"].get(name, parameter.default)
            if value is inspect.Parameter.empty:
                raise Refusal(f"{request['function']} needs {name}, which is a constexpr")
            constants[name] = value
        else:
            signature[name] = request["types"].get(name, request["pointer"])
    unknown = [n for n in (*request["types"], *request["values"]) if n not in names]
    if unknown:
        raise Refusal(f"{request['function']} takes no {unknown[0]}: it takes {', '.join(names)}")
    text = adapted(lowered(kernel, signature, constants, request["target"]), triton)
    return {"version": version, "text": text, "arguments": list(signature)}


def kernel_of(triton: Any, file: str, name: str) -> Any:
    """The kernel of a file. Raises Refusal."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    spec = importlib.util.spec_from_file_location("kernels_of_a_file", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refusal(f"{file} fails: {type(error).__name__}: {error}") from None
    found = getattr(module, name, None)
    kernels = [n for n, v in vars(module).items() if isinstance(v, triton.JITFunction)]
    if not isinstance(found, triton.JITFunction):
        listed = f": it has {', '.join(kernels)}" if kernels else ""
        raise Refusal(f"{file} has no Triton kernel {name}{listed}")
    return found


def lowered(kernel: Any, signature: dict[str, str], constants: dict[str, Any], target: str) -> str:
    """The kernel as Triton's IR. Raises Refusal for what Triton refuses."""
    ascend = importlib.import_module("triton.backends.ascend.compiler")
    compiler = importlib.import_module("triton.compiler.compiler")
    ir = importlib.import_module("triton._C.libtriton").ir
    chip = importlib.import_module("triton.backends.compiler").GPUTarget("npu", target, 0)
    backend, options = ascend.AscendBackend(chip), ascend.NPUOptions()
    source = compiler.ASTSource(kernel, signature=signature, constants=constants)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        made = source.make_ir(options, backend.get_codegen_implementation(), backend.get_module_map(), context)
        return str(ascend.make_ttir(made, {"hash": "none"}, options))
    except Exception as error:
        raise Refusal(f"Triton refuses the kernel: {type(error).__name__}: {' '.join(str(error).split())}") from None


def adapted(text: str, triton: Any) -> str:
    """What the adapter makes of Triton's IR. Raises Refusal."""
    program = os.path.join(os.path.dirname(triton.__file__), "backends", "ascend", ADAPTER)
    with tempfile.TemporaryDirectory() as folder:
        source, result = (os.path.join(folder, name) for name in ("in.mlir", "out.mlir"))
        with open(source, "w") as file:
            file.write(text)
        done = subprocess.run([program, source, *PASSES, "-o", result], capture_output=True, text=True, check=False)
        if done.returncode or not os.path.exists(result):
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            raise Refusal(f"{ADAPTER} refuses the kernel: {lines[0] if lines else f'exit code {done.returncode}'}")
        with open(result) as file:
            return file.read()


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the kernel's file prints is no answer
    try:
        found = answer(json.load(sys.stdin))
    except Refusal as error:
        found = {"error": str(error)}
    out.write(json.dumps(found) + "\n")
    out.flush()


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, whose modules are no concern of the kernel's
    main()

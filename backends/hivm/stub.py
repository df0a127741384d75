"""What stands beside exported kernels: a host program in C that runs one of them by ACL, and how to build both."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.dtypes import itemsize, size
from .kernels import DeviceArgument, HivmKernel
from .tools import TAIL

HOST = "host.c"
README = "README.md"

_ROLES = {"input": "INPUT", "output": "OUTPUT", "updated": "UPDATED", "workspace": "WORKSPACE"}

_PROGRAM = r"""
#define CHECK(call)                                                            \
    do {                                                                       \
        int status = (int)(call);                                              \
        if (status != 0) {                                                     \
            fprintf(stderr, "%s: error %d\n", #call, status);                  \
            return 1;                                                          \
        }                                                                      \
    } while (0)

/* Where the flags between cube and vector cores are: of libruntime, which has no header of its own for it. */
extern int rtGetC2cCtrlAddr(uint64_t *address, uint32_t *length);

/* Reads a whole file into memory of the device. */
static int load(const char *path, void *device, size_t bytes) {
    void *data = malloc(bytes);
    FILE *file = fopen(path, "rb");
    if (data == NULL || file == NULL || fread(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "%s: needs %zu bytes\n", path, bytes);
        return 1;
    }
    fclose(file);
    CHECK(aclrtMemcpy(device, bytes, data, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    free(data);
    return 0;
}

/* Writes memory of the device to a file. */
static int save(const char *path, const void *device, size_t bytes) {
    void *data = malloc(bytes);
    if (data == NULL) {
        return 1;
    }
    CHECK(aclrtMemcpy(data, bytes, device, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "%s: cannot be written\n", path);
        return 1;
    }
    fclose(file);
    free(data);
    return 0;
}

static const kernel_t *find(const char *name) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            return &kernels[i];
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    const kernel_t *kernel = argc > 2 ? find(argv[2]) : NULL;
    if (kernel == NULL) {
        fprintf(stderr, "usage: %s KERNEL.o KERNEL FILE... (for each input, then for each output)\n", argv[0]);
        return 2;
    }
    int wanted = 3;
    for (int i = 0; i < kernel->count; i++) {
        wanted += kernel->arguments[i].role != WORKSPACE;
    }
    if (argc != wanted) {
        fprintf(stderr, "%s takes %d files\n", kernel->name, wanted - 3);
        return 2;
    }
    aclrtStream stream;
    aclrtBinHandle binary;
    aclrtFuncHandle function;
    aclrtArgsHandle arguments;
    aclrtParamHandle parameter;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtBinaryLoadFromFile(argv[1], NULL, &binary));
    CHECK(aclrtBinaryGetFunction(binary, kernel->name, &function));
    CHECK(aclrtKernelArgsInit(function, &arguments));
    if (kernel->mixed) {
        uint64_t address = 0;
        uint32_t length = 0;
        CHECK(rtGetC2cCtrlAddr(&address, &length));
        CHECK(aclrtKernelArgsAppend(arguments, &address, sizeof address, &parameter));
    }
    void *memory[MOST];
    for (int i = 0; i < kernel->count; i++) {
        const argument_t *argument = &kernel->arguments[i];
        CHECK(aclrtMalloc(&memory[i], argument->bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        if (argument->role == INPUT || argument->role == UPDATED) {
            CHECK(load(argv[3 + i], memory[i], argument->bytes));
        }
        CHECK(aclrtKernelArgsAppend(arguments, &memory[i], sizeof memory[i], &parameter));
    }
    CHECK(aclrtKernelArgsFinalize(arguments));
    CHECK(aclrtLaunchKernelWithConfig(function, kernel->blocks, stream, NULL, arguments, NULL));
    CHECK(aclrtSynchronizeStream(stream));
    for (int i = 0; i < kernel->count; i++) {
        if (kernel->arguments[i].role == OUTPUT || kernel->arguments[i].role == UPDATED) {
            CHECK(save(argv[3 + i], memory[i], kernel->arguments[i].bytes));
        }
        CHECK(aclrtFree(memory[i]));
    }
    CHECK(aclrtBinaryUnLoad(binary));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    return 0;
}
"""


def host_program(kernels: Sequence[HivmKernel]) -> str:
    """C that loads a kernel's binary, copies its inputs in, launches it by its name, and copies its outputs out."""
    most = max((len(k.arguments) for k in kernels), default=0)
    lines = [
        "/* Runs one of the kernels beside it on a device, with inputs and outputs in files. */",
        "#include <stdint.h>",
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "#include <string.h>",
        "",
        "#include <acl/acl.h>",
        "",
        f"#define MOST {max(most, 1)}",
        "",
        "typedef enum { INPUT, OUTPUT, UPDATED, WORKSPACE } role_t;",
        "typedef struct { const char *name; role_t role; size_t bytes; } argument_t;",
        "typedef struct {",
        "    const char *name;",
        "    uint32_t blocks;",
        "    int mixed, count;",
        "    argument_t arguments[MOST];",
        "} kernel_t;",
        "",
        "static const kernel_t kernels[] = {",
        *(_row(kernel) for kernel in kernels),
        "};",
    ]
    return "\n".join(lines) + "\n" + _PROGRAM


def _row(kernel: HivmKernel) -> str:
    given = ", ".join(f'{{"{a.name}", {_ROLES[a.role]}, {_bytes(a)}}}' for a in kernel.arguments)
    mixed = int(kernel.kind == "MIX")
    return f'    {{"{kernel.name}", {kernel.blocks}, {mixed}, {len(kernel.arguments)}, {{{given}}}}},'


def _bytes(argument: DeviceArgument) -> int:
    return max(size(argument.shape), 1) * itemsize(argument.dtype)


_README = """# Kernels of {source} for {target}

Each `.hivm.mlir` file is one kernel in HIVM, the IR of the vendor's compiler, with the addresses, flags and barriers
that Tilewright proved to be free of hazards. The compiler's own planning of memory and flags is left out of the passes
below, so that they stay as they are.

| kernel | cores | blocks | arguments |
|---|---|---|---|
{rows}
{notes}
## Binaries

Needs `ascendnpu-ir` 1.2 (`pip install 'ascendnpu-ir==1.2.*'`), and `hivmc` of CANN in the PATH.

```sh
bin=$(python -c 'import ascendnpuir, os; print(os.path.dirname(ascendnpuir.__file__))')/bin
for kernel in *.hivm.mlir; do
    name="${{kernel%.hivm.mlir}}"
    "$bin/bishengir-opt" "$kernel" -o "$name.std.mlir" --pass-pipeline='{tail}'
    "$bin/bishengir-compile" "$name.std.mlir" --target={target} --enable-hivm-compile=false -o "$name.o"
done
```

## A run

`{host}` takes a binary, the name of its kernel, a file for each input and one for each output: the bytes of row-major
tensors. It allocates and copies them, launches as many blocks as the table says, and copies back. An output that the
kernel adds to is read from its file before.

```sh
cc {host} -o host -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_HOME_PATH/lib64" -lascendcl -lruntime
{call}
```
"""


def readme(kernels: Sequence[HivmKernel], source: str) -> str:
    """How the kernels become binaries, and run, where CANN is."""
    target = kernels[0].target if kernels else ""
    rows = [f"| `{k.name}` | {k.kind} | {k.blocks} | {_listed(k.arguments)} |" for k in kernels]
    notes = [f"* `{k.name}`: {note}." for k in kernels for note in k.notes]
    said = "\n".join(["", "Otherwise than our kernels:", "", *notes, ""]) if notes else ""
    call = _call(kernels[0]) if kernels else ""
    tail = TAIL.format(target=target)
    return _README.format(
        source=source, target=target, rows="\n".join(rows), notes=said, tail=tail, host=HOST, call=call
    )


def _listed(arguments: Sequence[DeviceArgument]) -> str:
    return ", ".join(f"{a.name} {a.dtype}[{','.join(map(str, a.shape))}]" for a in arguments)


def _call(kernel: HivmKernel) -> str:
    given = " ".join(f"{a.name}.bin" for a in kernel.arguments if a.role != "workspace")
    return f"./host {kernel.name}.o {kernel.name} {given}"

"""A process that has the command lines loaded, and a copy of itself run each command: to start Python and load xDSL
takes longer than most tests. `ask.py` is the other side.

    python ready.py SOCKET        # ends where its standard input does, and removes the socket's folder
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import socket
import sys

MODULES = ("tilewright.cli.opt", "tilewright.cli.main", "filecheck.main")
"""What may be asked for: modules with a function `main`."""

LARGEST = 1 << 20
"""Bytes of a request."""


def load() -> None:
    from tilewright.dialects import make_context
    from tilewright.passes.pipeline import all_passes

    for name in MODULES:
        importlib.import_module(name)
    for pass_ in all_passes().values():
        pass_()
    make_context()


def run(request: dict[str, object], streams: list[int]) -> int:
    """Runs a command in this process, with these standard streams; gives its exit code."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(n, mode, closefd=False) for n, mode in enumerate(("r", "w", "w"))
    )
    arguments, folder, environment = request["arguments"], request["folder"], request["environment"]
    assert isinstance(arguments, list) and isinstance(folder, str) and isinstance(environment, dict)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    try:
        code = importlib.import_module(arguments[0]).main()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if isinstance(code, str):
        os.write(2, f"{code}\n".encode())
        return 1
    return int(code or 0)


def answer(connection: socket.socket) -> None:
    """Has a copy of this process run what one connection asks for."""
    if os.fork():
        return
    code = 70
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, streams, _, _ = socket.recv_fds(connection, LARGEST, 3)
        while not message.endswith(b"\n"):
            message += connection.recv(LARGEST)
        code = run(json.loads(message), streams)
        connection.sendall(f"{code}\n".encode())
    finally:
        os._exit(code)


def serve(path: str) -> None:
    """Answers until standard input ends."""
    load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(16)
        selector.register(server, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not server:
                    os.unlink(path)
                    os.rmdir(os.path.dirname(path))
                    return
                connection, _ = server.accept()
                with connection:
                    answer(connection)


if __name__ == "__main__":
    serve(sys.argv[1])

"""Has the process of `ready.py` run a module's `main` with this process's arguments and standard streams.

python -S ask.py SOCKET MODULE ARGUMENT...
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    request = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    message = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(connection, [message], [0, 1, 2])
    connection.sendall(message[sent:])
    code = connection.recv(16)
if not code:
    sys.exit("the process that runs the tests' commands died of this one")
sys.exit(int(code))

"""``forked_python.py SOCKET -m MODULE WORDS…``: run the module in a fork of preloaded.py, as ``python -m`` would.

Input, output, signals and the exit code pass through.
"""

import json
import os
import signal
import socket
import sys

if __name__ == "__main__":
    _, path, _, module, *words = sys.argv
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = {"module": module, "words": words, "environment": dict(os.environ), "folder": os.getcwd()}
    socket.send_fds(connection, [json.dumps(request).encode()], [1, 2, 0])
    answers = connection.makefile()
    pid = int(answers.readline())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(answers.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)

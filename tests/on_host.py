"""Runs a module as on another machine: NAMESPACE HOSTS OWN SEEN MODULE WORDS…

The process and its children have the network of the namespace, its name as their host's, the file HOSTS as
/etc/hosts, and the folder OWN at the path SEEN. Needs root.
"""

import ctypes
import os
import runpy
import socket
import sys

NEW_NETWORK, NEW_MOUNTS, NEW_NAMES = 0x40000000, 0x00020000, 0x04000000
BIND, PRIVATE = 0x1000, 0x4000 | 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _called(done: int) -> None:
    if done:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def enter(namespace: str, hosts: str, own: str, seen: str) -> None:
    with open(f"/run/netns/{namespace}") as file:
        _called(_libc.setns(file.fileno(), NEW_NETWORK))
    _called(_libc.unshare(NEW_MOUNTS | NEW_NAMES))
    _called(_libc.mount(None, b"/", None, PRIVATE, None))
    for source, place in ((hosts, "/etc/hosts"), (own, seen)):
        _called(_libc.mount(source.encode(), place.encode(), None, BIND, None))
    socket.sethostname(namespace)


if __name__ == "__main__":
    _, *place, module = sys.argv[:6]
    del sys.argv[1:6]
    enter(*place)
    runpy.run_module(module, run_name="__main__", alter_sys=True)

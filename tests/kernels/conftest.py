"""The kernels in Triton's interpreter, on the CPU: ``make kernels`` sets the two variables that this needs.

Triton reads TRITON_INTERPRET when a kernel is defined, so these tests run in a pytest of their own.
Without it they are not collected.
"""

import os

import pytest
from xdist.scheduler import LoadScopeScheduling

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1" and os.environ.get("LOSSPOOL_KERNELS") == "interpret"
collect_ignore_glob = [] if INTERPRETING else ["test_*.py"]

if INTERPRETING:
    import kernel_interpreter

    kernel_interpreter.prepare()


def pytest_collection_modifyitems(items):
    for item in items:  # numpy warns of inf - inf and the like, which a GPU does not
        item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))


class Together(LoadScopeScheduling):
    """Sends the tests that share something expensive to one process, first of all. The others follow one by one."""

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0].rpartition("/")[2]
        if file == "test_builds.py":
            return "newer" if nodeid.endswith("[newer]") else "installed"
        return file if file in ("test_global.py", "test_compiled.py") else nodeid  # ranks; the compiler's import


def pytest_xdist_make_scheduler(config, log):
    return Together(config, log) if INTERPRETING else None

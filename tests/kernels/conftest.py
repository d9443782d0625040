"""The kernels in Triton's interpreter, on the CPU: ``make kernels`` sets the two variables that this needs.

Triton reads TRITON_INTERPRET when a kernel is defined, so these tests run in a pytest of their own.
Without it they are not collected.
"""

import os

import pytest

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1" and os.environ.get("LOSSPOOL_KERNELS") == "interpret"
collect_ignore_glob = [] if INTERPRETING else ["test_*.py"]

if INTERPRETING:
    import kernel_interpreter

    kernel_interpreter.prepare()


def pytest_collection_modifyitems(items):
    for item in items:  # numpy warns of inf - inf and the like, which a GPU does not
        item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))

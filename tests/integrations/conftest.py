"""Tests that need other frameworks. ``make test-integrations`` sets the variable; without it they are not collected."""

import os

import pytest

FRAMEWORKS = os.environ.get("LOSSPOOL_INTEGRATIONS") == "1"
collect_ignore = [] if FRAMEWORKS else [f"test_{name}.py" for name in ("huggingface", "lightning", "naive_swaps")]
# test_pages.py and test_recording.py run everywhere: they need torch, or choose the pages that need no more.

if FRAMEWORKS:
    from other_packages import import_torchvision

    import_torchvision()  # before transformers, timm and torchmetrics look for it


def pytest_collection_modifyitems(items):
    for item in items if FRAMEWORKS else ():
        if "integrations" in item.path.parts:  # the frameworks' warnings are their own
            item.add_marker(pytest.mark.filterwarnings("default"))

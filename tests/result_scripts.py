"""The scripts in results/, as a test calls them."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"results/{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def refused(main, *arguments, **options):
    """What it says: one sentence."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments], **options)
    assert isinstance(caught.value.code, str)  # Python prints it and exits with 1
    assert "\n" not in caught.value.code
    return caught.value.code

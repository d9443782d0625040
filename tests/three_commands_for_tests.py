"""From a download to a trained network: ``losspool data import``, ``plan`` and ``train``, in this process."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from losspool import cli
from losspool.segmentation.runs import RunFolder, read_metrics


def losspool(*words: object) -> None:
    """The command; anything but exit code 0 is an error."""
    with patch.object(sys, "argv", ["losspool", *map(str, words)]):
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, f"losspool {words} ended with {ended.value.code}"


def planned(write: Callable[[Path], Path], folder: Path, *options: str) -> Path:
    """Import a download and plan a recipe for it."""
    source, data, recipe = write(folder / "raw"), folder / "data", folder / "recipe.yaml"
    with patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")):
        losspool("data", "import", source, data, *options)
        losspool("plan", data, "--scratch", "--out", recipe)
    return recipe


def three_commands(write: Callable[[Path], Path], folder: Path, *overrides: str) -> float:
    """The mIoU at the end."""
    recipe, run = planned(write, folder), folder / "run"
    with patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")):
        losspool("train", recipe, "data.workers=0", "train.previews=0", *overrides, "--out", run)
    return float(read_metrics(RunFolder(run).metrics)[-1]["miou"])

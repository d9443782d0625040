"""Runs the Python of a page in docs/integrations: as printed, as the plain mean, and with the framework's own loss.

Each page trains for two steps and leaves their losses in ``losses``. A comment ``# before: …`` holds the statement
that the line below it replaces.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import losspool

FOLDER = Path(__file__).parent.parent / "docs" / "integrations"
TORCH_ONLY = {"pytorch", "detection-and-depth", "language-models"}
INSTALLED = {"huggingface", "lightning", "monai", "smp", "timm", "torchvision"}
"""Run by ``make test-integrations``."""
BY_HAND = {"keras", "mmsegmentation", "nnunet", "ultralytics"}
"""Run by ``tests/scripts/run_page.py``, where the framework is installed."""


def python_of(page: str) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", (FOLDER / f"{page}.md").read_text(), re.M | re.S))


def before(code: str) -> str:
    """The page without losspool."""
    return re.sub(r"^( *)# before: (.*)\n.*$", r"\1\2", code, flags=re.M)


@contextmanager
def plain_mean() -> Iterator[None]:
    """Losspool's defaults become those of the plain mean: p = ∞ and one pool per batch."""
    modules = (losspool.CrossEntropyLoss, losspool.UpsampledCrossEntropyLoss, losspool.BCEWithLogitsLoss)
    calls = [each.__init__ for each in (*modules, losspool.LossMaxPooling)]
    calls += [losspool.cross_entropy, losspool.upsampled_cross_entropy, losspool.max_pool]
    calls += [losspool.binary_cross_entropy_with_logits]
    defaults = [getattr(call, "__wrapped__", call).__kwdefaults__ for call in calls]
    kept = [dict(each) for each in defaults]
    try:
        for each in defaults:
            each |= {"p": float("inf"), "scope": "batch"}
        yield
    finally:
        for each, old in zip(defaults, kept, strict=True):
            each.update(old)


def losses_of(code: str) -> list[float]:
    torch.manual_seed(0)
    np.random.seed(0)  # timm's mixup
    scope: dict = {"__name__": "page"}
    exec(compile(code, "page", "exec"), scope)
    return [float(loss) for loss in scope["losses"]]


def check_page(page: str) -> tuple[list[float], list[float], list[float]]:
    """Pooling is the plain mean at p = ∞, and else weighs hard pixels more, from the first step on.

    Return the losses of both steps: of the framework, of losspool at p = ∞, and of losspool by default.
    """
    code = python_of(page)
    assert before(code) != code, f"{page}.md names nothing that losspool replaces"
    own, pooled = losses_of(before(code)), losses_of(code)
    with plain_mean():
        mean = losses_of(code)
    assert len(own) == 2
    assert own[0] != own[1], "nothing was trained"
    assert mean == pytest.approx(own, rel=1e-4)
    assert pooled[0] > own[0] * 1.0005  # untrained networks have nearly equal losses
    return own, mean, pooled

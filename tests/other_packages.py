"""Imports torchvision beside a CPU build of torch, for which its published wheel is not built."""

from importlib.util import find_spec

import torch

_DEFINED = []


def import_torchvision() -> None:
    """Define the operators that torchvision's import looks for. Its segmentation networks use neither."""
    if not _DEFINED and find_spec("torchvision") is not None and torch.version.cuda is None:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DEFINED.append(library)  # its operators live as long as it does

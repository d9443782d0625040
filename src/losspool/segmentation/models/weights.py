"""Pretrained weights: reading a file safely, telling its layout, loading it with no key left over."""

from __future__ import annotations

import os
import pickle
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from losspool.segmentation.base import UserError
from losspool.segmentation.models.deeplab import DeepLabV2

State = dict[str, Tensor]
Layout = Literal["torchvision", "deeplab-pytorch"]

SUFFIXES = (".pth", ".pt", ".safetensors")
_SHOWN = 5  # keys that a message names before it counts the rest


@dataclass(frozen=True)
class LoadReport:
    """What came from a file of weights, and what did not."""

    path: str
    layout: str
    loaded: int
    """How many tensors were loaded."""

    dropped: tuple[str, ...] = ()
    """Keys of the file that the model has no use for: another head."""

    fresh: tuple[str, ...] = ()
    """Parts of the model that keep their random start."""

    reason: str = ""
    """Why they do."""

    def __str__(self) -> str:
        text = f"{self.path}: {self.loaded} tensors loaded ({self.layout} layout)"
        text += f", {_some(self.dropped)} dropped" if self.dropped else ""
        return text + (f", {_some(self.fresh)} left fresh: {self.reason}" if self.fresh else "")


def read_weights(path: str | Path) -> State:
    """The tensors of a ``.pth``, ``.pt`` or ``.safetensors`` file, by key. No code of the file is run.

    A dict under ``state_dict`` or ``model`` is unwrapped, and the prefix ``module.`` that data-parallel
    training leaves is taken off.
    """
    path = Path(os.path.expanduser(path))  # pathlib's would raise for a user that there is not
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: weights are read from {', '.join(SUFFIXES)} files, not from {path.suffix!r}")
    if not os.path.isfile(path):  # nor does this one raise, for a name too long
        raise UserError(f"{path}: there is no such file of weights")
    content = _read(path)
    for name in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    if not isinstance(content, Mapping) or not content:
        raise UserError(f"{path}: expected tensors by name, found {_kind(content)}")
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise UserError(f"{path}: expected tensors by name, found {_kind(value)} under {key!r}")
    prefix = "module." if all(key.startswith("module.") for key in content) else ""
    return {key.removeprefix(prefix): value.detach() for key, value in content.items()}


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; what cannot be read raises
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read: {error.strerror or error}") from error
    except Exception as error:  # the readers raise whatever the bytes lead them to: KeyError, EOFError, …
        asked = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if asked:
            raise UserError(f"{path}: refused, it asks for {asked[1]}; only tensors are read, no code") from error
        raise UserError(f"{path}: the file is damaged, or holds something else than tensors") from error


def recognise(state: Mapping[str, Tensor], path: str | Path) -> Layout:
    """Whose key names these are: torchvision's, or those of kazuto1011/deeplab-pytorch."""
    if "conv1.weight" in state or "features.0.0.weight" in state:
        return "torchvision"
    if "layer1.conv1.conv.weight" in state or "base.layer1.conv1.conv.weight" in state:
        return "deeplab-pytorch"
    raise UserError(
        f"{path}: the keys are neither torchvision's (conv1.weight, features.0.0.weight) nor deeplab-pytorch's "
        f"(layer1.conv1.conv.weight): {_some(tuple(state))}"
    )


def load_backbone(model: DeepLabV2, state: State, path: str | Path) -> LoadReport:
    """Torchvision's layout into the backbone. The classifier is dropped, and nothing else."""
    backbone = model.backbone
    dropped = tuple(key for key in state if key.startswith(backbone.classifier))
    kept = {key: value for key, value in state.items() if key not in dropped}
    load_strictly(backbone, kept, path)
    return LoadReport(str(path), "torchvision", len(kept), dropped, ("aspp",), "the file has none")


def load_deeplab_pytorch(model: DeepLabV2, state: State, path: str | Path) -> LoadReport:
    """deeplab-pytorch's layout into the whole ResNet-101 model, its multi-scale wrapper (``base.``) or not.

    The ASPP keeps its random start where the file has none (the COCO initialisation has one 1×1 head,
    ``fc``, instead) or one for another number of classes.
    """
    prefix = "base." if all(key.startswith("base.") for key in state) else ""
    state = {key.removeprefix(prefix): value for key, value in state.items()}
    dropped: tuple[str, ...] = ()
    reason = ""
    head = tuple(key for key in state if key.startswith("aspp."))
    bias, classes = state.get("aspp.c0.bias"), model.aspp.num_classes
    if not head:
        dropped = tuple(key for key in ("fc.weight", "fc.bias") if key in state)
        reason = "the file has none"
    elif bias is not None and bias.ndim == 1 and len(bias) != classes:
        dropped = head
        reason = f"the file's has {len(bias)} classes, the model {classes}"
    kept = {key: value for key, value in state.items() if key not in dropped}
    load_strictly(model.backbone if reason else model, kept, path, deeplab_pytorch_key)
    fresh = ("aspp",) if reason else ()
    return LoadReport(str(path), "deeplab-pytorch", len(kept), dropped, fresh, reason)


def deeplab_pytorch_key(key: str) -> str:
    """deeplab-pytorch's name of one of our keys.

    >>> deeplab_pytorch_key("backbone.layer3.22.bn2.weight")
    'layer4.block23.conv3x3.bn.weight'
    """
    key = key.removeprefix("backbone.")
    if found := re.fullmatch(r"aspp\.branches\.(\d)\.(\w+)", key):
        return f"aspp.c{found[1]}.{found[2]}"
    if found := re.fullmatch(r"(conv|bn)1\.(\w+)", key):
        return f"layer1.conv1.{found[1]}.{found[2]}"
    if found := re.fullmatch(r"layer(\d)\.(\d+)\.(?:(conv|bn)(\d)|downsample\.([01]))\.(\w+)", key):
        stage, block, kind, index, shortcut, tensor = found.groups()
        kind = kind or ("conv", "bn")[int(shortcut)]
        part = ("reduce", "conv3x3", "increase")[int(index) - 1] if index else "shortcut"
        return f"layer{int(stage) + 1}.block{int(block) + 1}.{part}.{kind}.{tensor}"
    return key


def load_strictly(
    module: nn.Module, state: State, path: str | Path, rename: Callable[[str], str] = lambda key: key
) -> None:
    """Load every tensor of ``state``, and leave none of ``module`` as it was; else name the keys.

    ``rename`` gives the file's name of a key of ``module``, so that messages speak the file's names.
    """
    own = {rename(key): (key, value) for key, value in module.state_dict().items()}
    # files from before torch 0.4.1 lack this counter, which nothing reads where momentum is a number
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in state if name not in own]
    shapes = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(value.shape)}"
        for name, (_, value) in own.items()
        if name in state and state[name].shape != value.shape
    ]
    problems = [("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)]
    if any(keys for _, keys in problems):
        told = "; ".join(f"{len(keys)} {what} ({_some(keys)})" for what, keys in problems if keys)
        raise UserError(f"{path}: the keys do not fit the model: {told}")
    module.load_state_dict({own[name][0]: value for name, value in state.items()}, strict=False)


def _some(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:_SHOWN])
    return shown if len(keys) <= _SHOWN else f"{shown} and {len(keys) - _SHOWN} more"


def _kind(value: Any) -> str:
    return "nothing" if isinstance(value, Mapping) and not value else type(value).__name__

"""Pretrained weights: read a file safely, detect its layout, and load it strictly."""

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
from losspool.segmentation.models.network import Network

State = dict[str, Tensor]
Layout = Literal["torchvision", "deeplab-pytorch"]

SUFFIXES = (".pth", ".pt", ".safetensors")
_MAX_LISTED = 5  # keys that a message lists before it only counts the rest


@dataclass(frozen=True)
class LoadReport:
    """What was loaded from a weights file, and what was not."""

    path: str
    layout: str
    loaded: int
    """Number of tensors loaded."""

    dropped: tuple[str, ...] = ()
    """Keys in the file that the model does not use: another head."""

    fresh: tuple[str, ...] = ()
    """Parts of the model that stay randomly initialised."""

    reason: str = ""
    """Why ``fresh`` parts were not loaded."""

    def __str__(self) -> str:
        text = f"{self.path}: {self.loaded} tensors loaded ({self.layout} layout)"
        text += f", {_listed(self.dropped)} dropped" if self.dropped else ""
        return text + (f", {_listed(self.fresh)} randomly initialised: {self.reason}" if self.fresh else "")


def read_weights(path: str | Path) -> State:
    """Read the tensors of a ``.pth``, ``.pt`` or ``.safetensors`` file, by key, without running code from the file.

    Unwraps a dict under ``state_dict`` or ``model``, and strips the prefix ``module.`` that
    data-parallel training adds.
    """
    path = Path(os.path.expanduser(path))  # pathlib's expanduser raises for an unknown user
    if not path.suffix and not os.path.exists(path):
        raise UserError(f"{path}: the run or weights file does not exist")
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: a weights file must end in {', '.join(SUFFIXES)}, got {path.suffix!r}")
    if not os.path.isfile(path):  # unlike pathlib's, does not raise if the name is too long
        raise UserError(
            f"{path}: no such weights file; set model.weights (null trains from scratch; "
            f"`losspool recipes show NAME` says where to get it)"
        )
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
            warnings.simplefilter("ignore")  # about pickle protocols; unreadable files raise anyway
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read: {error.strerror or error}") from error
    except Exception as error:  # the readers raise all kinds of errors on damaged files: KeyError, EOFError, …
        requested = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if requested:
            raise UserError(f"{path}: refused, it asks for {requested[1]}; only tensors are read, no code") from error
        raise UserError(f"{path}: the file is damaged, or holds something other than tensors") from error


def recognise(state: Mapping[str, Tensor], path: str | Path) -> Layout:
    """Detect the layout from the key names: torchvision's, or kazuto1011/deeplab-pytorch's."""
    if "conv1.weight" in state or "features.0.0.weight" in state:
        return "torchvision"
    if "layer1.conv1.conv.weight" in state or "base.layer1.conv1.conv.weight" in state:
        return "deeplab-pytorch"
    raise UserError(
        f"{path}: the keys are neither torchvision's (conv1.weight, features.0.0.weight) nor deeplab-pytorch's "
        f"(layer1.conv1.conv.weight): {_listed(tuple(state))}"
    )


def load_backbone(model: Network, state: State, path: str | Path) -> LoadReport:
    """Load torchvision's layout into the backbone. Only the classifier is dropped."""
    backbone = model.backbone
    dropped = tuple(key for key in state if key.startswith(backbone.classifier))
    kept = {key: value for key, value in state.items() if key not in dropped}
    load_strictly(backbone, kept, path)
    return LoadReport(str(path), "torchvision", len(kept), dropped, tuple(model.head_parts()), "the file has none")


def load_deeplab_pytorch(model: DeepLabV2, state: State, path: str | Path) -> LoadReport:
    """Load deeplab-pytorch's layout into the ResNet-101 model, with or without its multi-scale wrapper (``base.``).

    The ASPP stays randomly initialised if the file has none (the COCO initialisation has a single 1×1
    head, ``fc``, instead) or has one for a different number of classes.
    """
    prefix = "base." if all(key.startswith("base.") for key in state) else ""
    state = {key.removeprefix(prefix): value for key, value in state.items()}
    dropped: tuple[str, ...] = ()
    reason = ""
    head = tuple(key for key in state if key.startswith("aspp."))
    bias, classes = state.get("aspp.c0.bias"), model.num_classes
    if not head:
        dropped = tuple(key for key in ("fc.weight", "fc.bias") if key in state)
        reason = "the file has none"
    elif bias is not None and bias.ndim == 1 and len(bias) != classes:
        dropped = head
        reason = f"the file has {len(bias)} classes, the model {classes}"
    kept = {key: value for key, value in state.items() if key not in dropped}
    load_strictly(model.backbone if reason else model, kept, path, deeplab_pytorch_key)
    fresh = ("aspp",) if reason else ()
    return LoadReport(str(path), "deeplab-pytorch", len(kept), dropped, fresh, reason)


def load_trained(module: nn.Module, state: State, path: str | Path, before: int, classes: int) -> LoadReport:
    """Load the weights of a network of the same architecture for ``before`` classes into one for ``classes``.

    Tensors that have an entry per class stay randomly initialised if the numbers differ.
    """
    own = module.state_dict()
    fresh = tuple(
        key
        for key, value in state.items()
        if key in own and (value.shape[:1], own[key].shape[:1]) == ((before,), (classes,)) and before != classes
    )
    load_strictly(module, {**state, **{key: own[key] for key in fresh}}, path)
    reason = f"the file has {before} classes, the model {classes}"
    return LoadReport(str(path), "losspool", len(state) - len(fresh), (), fresh, reason)


def deeplab_pytorch_key(key: str) -> str:
    """Return deeplab-pytorch's name for one of our keys.

    >>> deeplab_pytorch_key("backbone.layer3.22.bn2.weight")
    'layer4.block23.conv3x3.bn.weight'
    """
    key = key.removeprefix("backbone.")
    if match := re.fullmatch(r"aspp\.branches\.(\d)\.(\w+)", key):
        return f"aspp.c{match[1]}.{match[2]}"
    if match := re.fullmatch(r"(conv|bn)1\.(\w+)", key):
        return f"layer1.conv1.{match[1]}.{match[2]}"
    if match := re.fullmatch(r"layer(\d)\.(\d+)\.(?:(conv|bn)(\d)|downsample\.([01]))\.(\w+)", key):
        stage, block, kind, index, shortcut, tensor = match.groups()
        kind = kind or ("conv", "bn")[int(shortcut)]
        part = ("reduce", "conv3x3", "increase")[int(index) - 1] if index else "shortcut"
        return f"layer{int(stage) + 1}.block{int(block) + 1}.{part}.{kind}.{tensor}"
    return key


def load_strictly(
    module: nn.Module, state: State, path: str | Path, rename: Callable[[str], str] = lambda key: key
) -> None:
    """Load ``state`` into ``module``; raise an error that lists the keys unless both match exactly.

    ``rename`` maps a key of ``module`` to its name in the file, so that messages use the file's names.
    """
    own = {rename(key): (key, value) for key, value in module.state_dict().items()}
    # Files from before torch 0.4.1 lack this counter, which is unused when momentum is a number.
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in state if name not in own]
    shapes = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(value.shape)}"
        for name, (_, value) in own.items()
        if name in state and state[name].shape != value.shape
    ]
    problems = [("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)]
    if any(keys for _, keys in problems):
        summary = "; ".join(f"{len(keys)} {what} ({_listed(keys)})" for what, keys in problems if keys)
        raise UserError(f"{path}: the keys do not fit the model: {summary}")
    module.load_state_dict({own[name][0]: value for name, value in state.items()}, strict=False)


def _listed(keys: Sequence[str]) -> str:
    names = ", ".join(keys[:_MAX_LISTED])
    return names if len(keys) <= _MAX_LISTED else f"{names} and {len(keys) - _MAX_LISTED} more"


def _kind(value: Any) -> str:
    return "nothing" if isinstance(value, Mapping) and not value else type(value).__name__

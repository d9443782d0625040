"""What is compared: losses by name, as functions from logits and labels to a scalar, and the steps made of them.

Packages beyond torch are imported by ``load`` alone, so that only their own rows miss them.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

import losspool
import workloads
from workloads import VOID, M, P

Loss = Callable[[Tensor, Tensor], Tensor]

# MONAI's loss has no ignore_index: its labels get class 0 for void, before the clock starts.
WITHOUT_VOID = {"MONAI DiceFocalLoss"}
PEERS = (
    "sort-based pooling",
    "top-k bootstrapping",
    "kornia focal_loss",
    "MONAI DiceFocalLoss",
    "smp DiceLoss",
    "smp FocalLoss",
)


def load(name: str) -> Loss:
    """The loss of that name; raises whatever its package raises where it does not import."""
    return _FACTORIES[name]()


def training_step(name: str, workload: str) -> Callable[[], object]:
    """Forward and backward of a loss; the step returns the gradient of the logits."""
    loss = load(name)
    logits, labels = workloads.make(workloads.WORKLOADS[workload])
    if name in WITHOUT_VOID:
        labels = torch.where(labels == VOID, 0, labels)
    return lambda: torch.autograd.grad(loss(logits, labels), [logits])


def pooling_step(pools: int, pixels: int) -> Callable[[], object]:
    losses = workloads.losses(pools, pixels)
    return lambda: losspool.pooling_weights(losses, p=P, m=M)


def sorting_step(pools: int, pixels: int) -> Callable[[], object]:
    losses = workloads.losses(pools, pixels)
    return lambda: losses.sort()


def ours(input: Tensor, target: Tensor) -> Tensor:
    scope = "image" if input.ndim > 2 else "batch"
    return losspool.cross_entropy(input, target, p=P, m=M, ignore_index=VOID, scope=scope)


def ours_upsampled(input: Tensor, target: Tensor) -> Tensor:
    return losspool.upsampled_cross_entropy(input, target, p=P, m=M, ignore_index=VOID)


def plain(input: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(input, target, ignore_index=VOID)


def plain_upsampled(input: Tensor, target: Tensor) -> Tensor:
    full = F.interpolate(input, target.shape[1:], mode="bilinear", align_corners=False)
    return F.cross_entropy(full, target, ignore_index=VOID)


def sort_based(input: Tensor, target: Tensor) -> Tensor:
    """Loss max-pooling as one would write it from the paper: sort each image's losses, then sum and search."""
    losses = F.cross_entropy(input, target, ignore_index=VOID, reduction="none")
    pools = [image[labels != VOID] for image, labels in zip(losses, target, strict=True)]
    return torch.stack([(_sorted_weights(pool.detach()) * pool).sum() for pool in pools]).mean()


def _sorted_weights(losses: Tensor) -> Tensor:
    n, q = losses.numel(), P / (P - 1)
    m = M * n
    largest = losses.max()
    # Float64 from here on: a running sum of ℓ^q over half an image is beyond float32.
    z = q * (losses.sort().values.double() / largest).log()
    log_a = z.logcumsumexp(0)
    c = m - n + torch.arange(1, n + 1, dtype=torch.float64, device=losses.device)
    rising = (c > 0) & (c.clamp(min=0).log() + z > log_a)
    below = int(rising.int().argmax()) if bool(rising.any()) else n
    alpha = largest * ((log_a[below - 1] - c[below - 1].log()) / q).exp().float()
    tau = n ** (1 / P - 1) * m ** (-1 / P)
    return tau * (losses / alpha).pow(q - 1).clamp(max=1.0)


def top_k(input: Tensor, target: Tensor) -> Tensor:
    """Online bootstrapping: the mean of each image's hardest quarter of valid pixels."""
    losses = F.cross_entropy(input, target, ignore_index=VOID, reduction="none").flatten(1)
    counts = [max(int(M * n), 1) for n in (target != VOID).flatten(1).sum(1).tolist()]
    return torch.stack(
        [image.topk(k, sorted=False).values.mean() for image, k in zip(losses, counts, strict=True)]
    ).mean()


def _kornia_focal() -> Loss:
    from kornia.losses import focal_loss

    return lambda input, target: focal_loss(input, target, alpha=None, gamma=2.0, reduction="mean", ignore_index=VOID)


def _monai_dice_focal() -> Loss:
    from monai.losses import DiceFocalLoss

    module = DiceFocalLoss(to_onehot_y=True, softmax=True)
    return lambda input, target: module(input, target.unsqueeze(1))


def _smp(name: str) -> Loss:
    return getattr(_smp_losses(), name)("multiclass", ignore_index=VOID)


def _smp_losses() -> ModuleType:
    """segmentation-models-pytorch's losses without the rest of the package.

    They need torch and numpy only; importing the package brings its encoders, timm and
    torchvision, and torchvision's published wheel does not import beside a CPU torch.
    """
    package = importlib.util.find_spec("segmentation_models_pytorch")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'segmentation_models_pytorch'")
    folder = Path(package.submodule_search_locations[0]) / "losses"
    spec = importlib.util.spec_from_file_location("smp_losses", folder / "__init__.py")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("segmentation_models_pytorch has no losses")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compiled(loss: Loss) -> Loss:
    return torch.compile(loss, fullgraph=True, dynamic=False)


_FACTORIES: dict[str, Callable[[], Loss]] = {
    "losspool": lambda: ours,
    "losspool probabilities": lambda: lambda input, target: losspool.cross_entropy(input, target, p=P, m=M),
    "losspool upsampled": lambda: ours_upsampled,
    "losspool compiled": lambda: _compiled(ours),
    "torch": lambda: plain,
    "torch probabilities": lambda: F.cross_entropy,
    "torch upsampled": lambda: plain_upsampled,
    "torch compiled": lambda: _compiled(plain),
    "sort-based pooling": lambda: sort_based,
    "top-k bootstrapping": lambda: top_k,
    "kornia focal_loss": _kornia_focal,
    "MONAI DiceFocalLoss": _monai_dice_focal,
    "smp DiceLoss": lambda: _smp("DiceLoss"),
    "smp FocalLoss": lambda: _smp("FocalLoss"),
}

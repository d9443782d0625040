"""What a run is made of: frozen dataclasses with a word on every field. A recipe states only its differences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from losspool.segmentation.base import (
    UserError,
    check_at_least,
    check_choice,
    check_positive,
    check_within,
    is_import_path,
)
from losspool.segmentation.data import Dataset, dataset_kind, open_dataset
from losspool.segmentation.losses import LOSSES, LossConfig

_UNIFORM = {"sampling.mix": 0.0}
METHODS: dict[str, dict[str, Any]] = {
    "base": {"loss.name": "cross_entropy", **_UNIFORM},
    "base_plus": {"loss.name": "cross_entropy"},
    **{name: {"loss.name": name, **_UNIFORM} for name in LOSSES if name not in ("cross_entropy", "lmp")},
    "lmp_loss_only": {"loss.name": "lmp", **_UNIFORM},
    "lmp": {"loss.name": "lmp"},
}
"""Presets of loss and sampler. Where no mix is named, it is the recipe's: the paper's sampling."""


def method_settings(name: str) -> dict[str, Any]:
    """The preset of that name. The import path of an outside package's loss is a method too, sampled uniformly."""
    return {"loss.name": name, **_UNIFORM} if is_import_path(name) else METHODS[name]


PREFERENCES = ("inverse", "complement")
LARGEST_SEED = (1 << 31) - 1  # the step enters torch's 64 bits beside it
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
TILINGS = ("none", "efficient", "optimized")


@dataclass(frozen=True)
class DataConfig:
    """Which images, and how crops of them are made."""

    name: str = "streets"
    """cityscapes, voc, camvid, folder or streets."""
    root: str | None = None
    """The folder of the data; streets needs none."""
    train: str = "train"
    """The split to train on."""
    val: str = "val"
    """The split to validate on."""
    zoom: float = 1.0
    """The scale at which images are seen: 0.5 is half the resolution. Scores are always at the labels' own."""
    crop: tuple[int, int] = (256, 256)
    """Height and width of a training crop."""
    scale: tuple[float, float] = (0.5, 1.5)
    """Random enlargement of a crop, beyond ``zoom``."""
    flip: bool = True
    """Mirror every second crop."""
    workers: int = 2
    """Loader processes; 0 reads in the training process. The crops are the same."""
    skip_broken: bool = False
    """Go on without files that cannot be read, and count them; otherwise the first one ends the run."""
    timeout: float = 300.0
    """Seconds that a batch may take; then the run fails, because a read or a worker hangs. 0 waits for ever."""
    cache: str | None = None
    """The folder of the class index; the user's cache folder if not given."""
    streets_size: tuple[int, int] = (256, 256)
    """Height and width of generated scenes."""
    streets_train: int = 1000
    """How many scenes there are to train on."""

    def __post_init__(self) -> None:
        check_positive("data.zoom", self.zoom)
        for extent in self.crop:
            check_at_least("data.crop", extent, 1)
        for scale in self.scale:
            check_positive("data.scale", scale)
        if self.scale[0] > self.scale[1]:
            raise UserError(f"data.scale must name the smaller scale first, got {list(self.scale)}")
        check_at_least("data.workers", self.workers, 0)
        check_within("data.timeout", self.timeout, 0, math.inf)

    def open(self, split: str) -> Dataset:
        """A split of the data."""
        return open_dataset(self.name, self.root, split, **dataset_kind(self.name).options(self, split))


@dataclass(frozen=True)
class ModelConfig:
    """Which network."""

    name: str = "deeplabv2_mobilenetv2"
    """One of the built-in models, or the import path of a callable that takes the number of classes."""
    weights: str | None = None
    """A file of pretrained weights: torchvision's or deeplab-pytorch's key names."""
    output_stride: int = 8
    """8 as in the paper, or 16."""
    frozen_bn: bool | None = None
    """Keep BatchNorm as it was loaded; if not given, with weights yes, without no."""


@dataclass(frozen=True)
class SamplingConfig:
    """How crops are drawn; see docs/data.md."""

    mix: float = 0.5
    """The share of crops aimed at classes with a low running IoU; 0 is uniform."""
    preference: str = "inverse"
    """``inverse``: 1/(IoU + 0.05); ``complement``: 1 - IoU."""
    decay: float = 0.99
    """What a step leaves of the running confusion matrix."""
    lag: int = 32
    """Draws use the IoU of this many steps ago."""

    def __post_init__(self) -> None:
        check_within("sampling.mix", self.mix, 0, 1)
        check_choice("sampling.preference", self.preference, PREFERENCES)
        if not 0 <= self.decay < 1:
            raise UserError(f"sampling.decay must be at least 0 and below 1, got {self.decay!r}")
        check_at_least("sampling.lag", self.lag, 1)


@dataclass(frozen=True)
class TrainConfig:
    """The optimisation, and what is written on the way."""

    steps: int = 1000
    """Updates of the weights."""
    batch: int = 4
    """Crops per update, process and micro-batch."""
    accumulate: int = 1
    """Micro-batches per update."""
    lr: float = 0.01
    """The first learning rate, of the backbone."""
    head_factor: float = 10.0
    """The head learns this many times as fast."""
    power: float = 0.9
    """The rate falls as (1 - step/steps)^power."""
    warmup: int = 0
    """Over this many first steps the rate rises from nothing to its course; a fresh head needs it at high rates."""
    momentum: float = 0.9
    """SGD's."""
    weight_decay: float = 5e-4
    """SGD's."""
    precision: str = "32-true"
    """32-true, bf16-mixed or 16-mixed."""
    compile: bool = False
    """Compile the network with torch.compile."""
    channels_last: bool = False
    """Lay out the network's memory with the channels last."""
    log_every: int = 10
    """Steps between lines of metrics."""
    validate_every: int = 500
    """Steps between validations; the end is always validated."""
    checkpoint_every: int = 500
    """Steps between checkpoints; the end always is one."""
    keep_last: int = 2
    """How many of the newest checkpoints stay."""
    keep_steps: tuple[int, ...] = ()
    """Steps whose checkpoints stay for good."""
    previews: int = 4
    """How many images of the validation split are predicted and kept as pictures at every validation."""
    tensorboard: bool = False
    """Write TensorBoard's files as well."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate", "log_every", "validate_every", "checkpoint_every", "keep_last"):
            check_at_least(f"train.{name}", getattr(self, name), 1)
        for name in ("warmup", "previews"):
            check_at_least(f"train.{name}", getattr(self, name), 0)
        for name in ("lr", "head_factor"):
            check_positive(f"train.{name}", getattr(self, name))
        check_within("train.momentum", self.momentum, 0, 1)
        for name in ("power", "weight_decay"):
            check_within(f"train.{name}", getattr(self, name), 0, 1e6)
        check_choice("train.precision", self.precision, PRECISIONS)


@dataclass(frozen=True)
class EvaluateConfig:
    """How whole images are predicted."""

    tiling: str = "none"
    """none, efficient (five tiles side by side) or optimized (five that overlap by 200 pixels)."""
    scales: tuple[float, ...] = (1.0,)
    """Predict at each of these and average the probabilities."""
    flip: bool = False
    """Average with the prediction of the mirrored image."""

    def __post_init__(self) -> None:
        check_choice("evaluate.tiling", self.tiling, TILINGS)
        if not self.scales:
            raise UserError("evaluate.scales must name at least one scale")
        for scale in self.scales:
            check_positive("evaluate.scales", scale)


@dataclass(frozen=True)
class Config:
    """A whole run."""

    recipe: str = "run"
    """The recipe's name; it names the run's folder."""
    method: str = "lmp"
    """A preset of loss and sampler, see ``METHODS``."""
    seed: int = 0
    """Decides the fresh weights and every draw."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)

    def __post_init__(self) -> None:
        # It becomes part of a folder's name: a recipe from elsewhere must not write where it likes.
        if not self.recipe.isprintable() or set("/\\") & set(self.recipe) or self.recipe.startswith("."):
            raise UserError(f"recipe must be a plain name, without slashes and dots before it, got {self.recipe!r}")
        if not is_import_path(self.method):
            check_choice("method", self.method, METHODS)
        check_within("seed", self.seed, 0, LARGEST_SEED)

"""What a run is made of: frozen dataclasses with a word on every field. A recipe states only its differences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from losspool.segmentation.errors import UserError

METHODS: dict[str, dict[str, Any]] = {
    "base": {"loss.name": "cross_entropy", "sampling.mix": 0.0},
    "base_plus": {"loss.name": "cross_entropy"},
    "inverse_frequency": {"loss.name": "inverse_frequency", "sampling.mix": 0.0},
    "median_frequency": {"loss.name": "median_frequency", "sampling.mix": 0.0},
    "bootstrapping": {"loss.name": "bootstrapping", "sampling.mix": 0.0},
    "focal": {"loss.name": "focal", "sampling.mix": 0.0},
    "random_pixels": {"loss.name": "random_pixels", "sampling.mix": 0.0},
    "lmp_loss_only": {"loss.name": "lmp", "sampling.mix": 0.0},
    "lmp": {"loss.name": "lmp"},
}
"""Presets of loss and sampler. Where no mix is named, it is the recipe's: the paper's sampling."""

LOSSES = ("cross_entropy", "lmp", "inverse_frequency", "median_frequency", "bootstrapping", "focal", "random_pixels")
SCOPES = ("image", "batch", "global")
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
        _positive("data.zoom", self.zoom)
        for extent in self.crop:
            _at_least("data.crop", extent, 1)
        for scale in self.scale:
            _positive("data.scale", scale)
        if self.scale[0] > self.scale[1]:
            raise UserError(f"data.scale must name the smaller scale first, got {list(self.scale)}")
        _at_least("data.workers", self.workers, 0)
        _within("data.timeout", self.timeout, 0, math.inf)


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
class LossConfig:
    """Which loss."""

    name: str = "lmp"
    """cross_entropy, lmp, inverse_frequency, median_frequency, bootstrapping, focal or random_pixels."""
    p: float = 1.3
    """The norm of loss max-pooling: 1 the hardest pixels alone, inf the plain mean."""
    m: Any = "25%"
    """``25%`` or ``0.25`` of the valid pixels, or ``1000px``. Of lmp this is the least support, of bootstrapping and
    random_pixels how many are used."""
    scope: str = "image"
    """Pool each image by itself, the ``batch`` as one, or ``global``: the batches of all processes as one."""
    label_smoothing: float = 0.0
    """As in F.cross_entropy."""
    focal_gamma: float = 2.0
    """The exponent of the focal loss."""

    def __post_init__(self) -> None:
        _choice("loss.name", self.name, LOSSES)
        _within("loss.p", self.p, 1, math.inf)
        parse_m(self.m)
        _choice("loss.scope", self.scope, SCOPES)
        _within("loss.label_smoothing", self.label_smoothing, 0, 1)
        _within("loss.focal_gamma", self.focal_gamma, 0, math.inf)

    @property
    def share(self) -> float | int:
        """``m`` as the loss takes it: a float is a share, an int a number of pixels."""
        return parse_m(self.m)


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
        _within("sampling.mix", self.mix, 0, 1)
        _choice("sampling.preference", self.preference, PREFERENCES)
        if not 0 <= self.decay < 1:
            raise UserError(f"sampling.decay must be at least 0 and below 1, got {self.decay!r}")
        _at_least("sampling.lag", self.lag, 1)


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
            _at_least(f"train.{name}", getattr(self, name), 1)
        for name in ("warmup", "previews"):
            _at_least(f"train.{name}", getattr(self, name), 0)
        for name in ("lr", "head_factor"):
            _positive(f"train.{name}", getattr(self, name))
        _within("train.momentum", self.momentum, 0, 1)
        for name in ("power", "weight_decay"):
            _within(f"train.{name}", getattr(self, name), 0, 1e6)
        _choice("train.precision", self.precision, PRECISIONS)


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
        _choice("evaluate.tiling", self.tiling, TILINGS)
        if not self.scales:
            raise UserError("evaluate.scales must name at least one scale")
        for scale in self.scales:
            _positive("evaluate.scales", scale)


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
        _choice("method", self.method, METHODS)
        _within("seed", self.seed, 0, LARGEST_SEED)


def parse_m(value: Any) -> float | int:
    """``"25%"`` and ``0.25`` are a share, ``"1000px"`` a number of pixels; a bare whole number could be either.

    >>> parse_m("25%"), parse_m(0.1), parse_m("1px")
    (0.25, 0.1, 1)
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            if text.endswith("%"):
                return _share(float(text[:-1]) / 100, value)
            if text.endswith("px"):
                pixels = int(text[:-2])
                if pixels >= 1:
                    return pixels
        except ValueError:
            pass
    elif isinstance(value, float):
        return _share(value, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        raise UserError(f"loss.m = {value!r} could be a share or a number of pixels: write {value}px or a percentage")
    raise UserError(f"loss.m must be like 25%, 0.25 or 1000px, got {value!r}")


def _share(share: float, given: Any) -> float:
    if not 0 < share <= 1 or math.isnan(share):
        raise UserError(f"loss.m must be more than 0 and at most 100%, got {given!r}")
    return share


def _choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"{name} must be at least {least}, got {value!r}")


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise UserError(f"{name} must be positive, got {value!r}")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UserError(f"{name} must lie between {low} and {high}, got {value!r}")

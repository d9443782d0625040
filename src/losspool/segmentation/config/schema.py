"""The settings of a run: frozen dataclasses with a docstring per field."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from losspool.segmentation.base import (
    NUMBER,
    Args,
    Count,
    Fraction,
    NameIn,
    Natural,
    NonNegative,
    Positive,
    is_import_path,
    parse_number,
    section,
)
from losspool.segmentation.data import (
    DATASETS,
    Dataset,
    Intensity,
    Reading,
    check_root,
    dataset_kind,
    is_custom,
    open_dataset,
)
from losspool.segmentation.losses import LOSSES, LossConfig
from losspool.segmentation.models import MODELS, PACKAGES, UNET, BatchNormMode, default_output_stride

_UNIFORM = {"sampling.mix": 0.0}
METHODS: dict[str, dict[str, Any]] = {
    "base": {"loss.name": "cross_entropy", **_UNIFORM},
    "base_plus": {"loss.name": "cross_entropy"},
    **{name: {"loss.name": name, **_UNIFORM} for name in LOSSES if name not in ("cross_entropy", "lmp")},
    "lmp_loss_only": {"loss.name": "lmp", **_UNIFORM},
    "lmp": {"loss.name": "lmp"},
}
"""Presets of loss and sampler. Presets without ``sampling.mix`` keep the recipe's value."""


def method_settings(name: str) -> dict[str, Any]:
    """The preset of a method. The import path of another package's loss is a method too, sampled uniformly."""
    return {"loss.name": name, **_UNIFORM} if is_import_path(name) else METHODS[name]


LARGEST_SEED = (1 << 31) - 1  # the step enters torch's 64 bits beside it
Tiling = Literal["none", "efficient", "optimized"]
TILINGS = get_args(Tiling)
Tracker = Literal["tensorboard", "wandb", "mlflow"]


def _ascending(scale: tuple[float, float]) -> tuple[float, float]:
    if scale[0] > scale[1]:
        raise ValueError("must name the smaller scale first")
    return scale


def _intensity(value: Any) -> Any:
    if value in ("auto", "full"):
        return value
    ends = [parse_number(each) for each in value] if isinstance(value, list | tuple) else []
    if len(ends) != 2 or not all(isinstance(each, int | float) and math.isfinite(each) for each in ends):
        raise ValueError("must be auto, full or two numbers [low, high]")
    if ends[0] >= ends[1]:
        raise ValueError("must name the lower value first")
    return tuple(map(float, ends))


_RANGE = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
_INTENSITY_SCHEMA = WithJsonSchema({"anyOf": [{"enum": ["auto", "full"]}, _RANGE]})


def _plain_name(name: str) -> str:
    # It becomes part of a folder's name: a recipe from elsewhere must not write where it likes.
    if not name.isprintable() or set("/\\") & set(name) or name.startswith("."):
        raise ValueError("must be a plain name, without slashes or a leading dot")
    return name


def _square(size: Any) -> Any:
    if isinstance(size, list | tuple):
        return size
    with suppress(ValueError):  # a boolean
        if isinstance(number := parse_number(size), int | float):
            return number, number
    raise ValueError("must be a number or a list [height, width]")


Method = Annotated[str, NameIn(METHODS)]
_Pair = tuple[Count, Count]
Size = Annotated[_Pair, BeforeValidator(_square, json_schema_input_type=Count | _Pair)]
"""Height and width, or one number for a square."""


@section("data")
class DataConfig:
    """Which images, and how crops of them are made."""

    name: Annotated[str, NameIn(DATASETS)] = "streets"
    """The dataset: a name from the table of datasets, or the import path of another package's."""
    root: str | None = None
    """Data folder (not needed for streets)."""
    train: str = "train"
    """The split to train on."""
    val: str | None = "val"
    """The split to validate on; null trains without validation."""
    zoom: Positive = 1.0
    """Image scale: 0.5 halves the resolution. Scores are computed at label resolution."""
    crop: Size = (256, 256)
    """Height and width of a training crop; one number is a square."""
    scale: Annotated[tuple[Positive, Positive], AfterValidator(_ascending)] = (0.5, 1.5)
    """Range of the random scale, multiplied by ``zoom``."""
    flip: bool = True
    """Flip crops horizontally with probability 0.5."""
    photometric: Fraction = 0.0
    """Strength of random changes of brightness, contrast, saturation, hue and sharpness; see docs/data.md."""
    grey: Fraction = 0.0
    """Probability that a crop is made grey."""
    rotate: Annotated[float, Field(ge=0, le=180), NUMBER] = 0.0
    """Rotate crops by up to this many degrees to either side."""
    turns: bool = False
    """Turn crops by 0, 90, 180 or 270 degrees; with ``flip`` also upside down. For images that have no up."""
    exif: Literal["apply", "ignore"] = "apply"
    """Turn images as their EXIF orientation says, and labels that have one; or read the pixels as they are stored."""
    intensity: Annotated[Intensity, PlainValidator(_intensity), _INTENSITY_SCHEMA] = "auto"
    """Values [low, high] that become black and white in grey images of more than 8 bits (auto: their range in the
    training split; full: 0 and 65535)."""
    workers: Natural = 2
    """Loader processes; 0 reads in the training process. The crops are the same."""
    skip_broken: bool = False
    """Skip and count unreadable files instead of stopping at the first."""
    timeout: NonNegative = 300.0
    """Seconds to wait for a batch before the run fails. 0 disables the limit."""
    cache: str | None = None
    """Folder of the class index (default: the user's cache folder)."""
    streets_size: Size = (256, 256)
    """Height and width of generated scenes; one number is a square."""
    streets_train: Count = 1000
    """Number of generated training scenes."""
    streets_focal: Positive = 1.0
    """Focal length of generated scenes, relative to the usual one: 2 shows everything twice as large."""
    streets_noise: Fraction = 0.0
    """Share of the label blobs of generated training scenes that get a wrong class."""

    @property
    def title(self) -> str:
        """The data's human-readable name: the folder's for custom data, else ``name`` without its package."""
        if is_custom(self.name) and self.root is not None:
            return os.path.basename(os.path.abspath(os.path.expanduser(self.root))) or self.name
        return self.name.rpartition(".")[2]

    def open(self, split: str) -> Dataset:
        """A split of the data."""
        check_root(self.name, None if self.root is None else Path(os.path.expanduser(self.root)))
        options = dataset_kind(self.name).options(self, split)
        return open_dataset(self.name, self.root, split, reading=self.reading, **options)

    @property
    def reading(self) -> Reading:
        """How image files are read."""
        return Reading(self.exif, self.intensity)


@section("model")
class ModelConfig:
    """Which network."""

    name: Annotated[str, NameIn(MODELS, PACKAGES, {"unet": UNET, "u-net": UNET})] = "deeplabv2_mobilenetv2"
    """A built-in model, another package's such as smp:Unet, or the import path of a callable; see docs/models.md."""
    weights: str | None = None
    """Pretrained weights: a file with torchvision's or deeplab-pytorch's key names, or a run or checkpoint of losspool
    to fine-tune; its head is new if the number of classes differs."""
    output_stride: Literal[8, 16, 32] | None = None
    """Output stride of a built-in model's backbone (default: 8 for DeepLabV2, 16 for DeepLabV3+, 32 for FPN)."""
    batch_norm: BatchNormMode | None = None
    """Freeze BatchNorm, train it per process, or over all processes (sync, on GPUs; default: frozen only with
    pretrained weights)."""
    aux_weight: NonNegative = 0.4
    """Weight of the auxiliary head's loss, for models that have one."""
    args: Args = field(default_factory=dict)
    """Keyword arguments of a model that is not built in."""

    def __post_init__(self) -> None:
        if self.output_stride is None:  # stated in full, so that a run's config.yaml keeps its meaning
            object.__setattr__(self, "output_stride", default_output_stride(self.name) or 8)


@section("sampling")
class SamplingConfig:
    """How crops are drawn; see docs/data.md."""

    mix: Fraction = 0.5
    """The share of crops aimed at classes with a low running IoU; 0 is uniform."""
    preference: Literal["inverse", "complement"] = "inverse"
    """``inverse``: 1/(IoU + 0.05); ``complement``: 1 - IoU."""
    decay: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.99
    """Decay of the running confusion matrix per step."""
    lag: Count = 32
    """Draws use the IoU of this many steps ago."""


@section("train")
class TrainConfig:
    """The optimisation, and what is written on the way."""

    steps: Count = 1000
    """Updates of the weights. May be raised when a run is resumed: the schedule is then that of the new number."""
    batch: Count = 4
    """Crops per update, process and micro-batch; the largest micro-batch with ``global_batch``."""
    accumulate: Count = 1
    """Micro-batches per update."""
    global_batch: Count | None = None
    """Crops per update over all processes, for any number of processes: it sets the number of micro-batches (default:
    batch × accumulate × processes, and a run keeps its number of processes)."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """sgd, or adamw, which needs a lower rate (such as 3e-4) and another ``weight_decay`` (such as 0.01)."""
    lr: Positive = 0.01
    """Initial learning rate of the backbone."""
    head_factor: Positive = 10.0
    """Learning rate of the head, relative to the backbone."""
    schedule: Literal["poly", "cosine"] = "poly"
    """How the rate falls to zero: poly, (1 - step/steps)^power, or cosine, (1 + cos(π·step/steps))/2."""
    power: Annotated[float, Field(ge=0, le=1e6), NUMBER] = 0.9
    """The power of schedule poly."""
    warmup: Natural = 0
    """Steps of linear warm-up. A new head needs them at high rates."""
    momentum: Fraction = 0.9
    """Momentum of SGD."""
    weight_decay: Annotated[float, Field(ge=0, le=1e6), NUMBER] = 5e-4
    """Weight decay. AdamW decays neither biases nor norms, and needs more: 0.01 to 0.05 is usual."""
    clip: NonNegative = 0.0
    """Largest norm of the gradient; a longer one is scaled down to it. 0 disables the limit."""
    ema: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.0
    """Decay of averaged weights, such as 0.999; these are validated and predict. 0 averages nothing."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """32-true, bf16-mixed or 16-mixed."""
    compile: bool = False
    """Compile the network with torch.compile."""
    channels_last: bool = False
    """Lay out the network's memory with the channels last."""
    log_every: Count = 10
    """Steps between lines of metrics."""
    validate_every: Count = 500
    """Steps between validations; the end is always validated."""
    checkpoint_every: Count = 500
    """Steps between checkpoints; the last step is always saved."""
    keep_last: Count = 2
    """Number of newest checkpoints to keep."""
    keep_steps: tuple[Natural, ...] = ()
    """Steps whose checkpoints are never deleted."""
    previews: Natural = 4
    """Number of validation images to save as previews."""
    trackers: tuple[Tracker, ...] = ()
    """Experiment trackers that get all metrics and previews as well: tensorboard, wandb, mlflow."""
    timeout: Annotated[float, Field(gt=0, le=1e6), NUMBER] = 1800.0
    """Seconds to wait for another process before the run fails."""


@section("evaluate")
class EvaluateConfig:
    """How whole images are predicted."""

    tiling: Tiling = "none"
    """none, efficient (five tiles side by side) or optimized (five that overlap by 200 pixels)."""
    scales: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1.0,)
    """Predict at each of these and average the probabilities."""
    flip: bool = False
    """Average with the prediction of the mirrored image."""


@section()
class Config:
    """A whole run."""

    recipe: Annotated[str, AfterValidator(_plain_name)] = "run"
    """The recipe's name, which may be part of the name of the run's folder."""
    method: Method = "lmp"
    """A preset of loss and sampler, or the import path of a loss."""
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED), NUMBER] = 0
    """Seed of the initial weights and all random draws."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)


@section()
class Recipe(Config):
    """A recipe: settings that differ from the defaults. See docs/training.md."""

    methods: dict[Method, Config] = field(default_factory=dict)
    """Settings by method that apply when this method is trained, such as its learning rate."""
    resolved: bool = False
    """Whether the file states every setting, as a run's config.yaml does."""

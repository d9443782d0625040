"""Decide on a recipe from a dataset's class index, with a reason for each setting."""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from losspool.segmentation.base import UserError, counted, percent, plain, replacing
from losspool.segmentation.config import DataConfig, load_config
from losspool.segmentation.data import (
    ClassIndex,
    Dataset,
    HasReading,
    Reading,
    class_index,
    existing_folder,
    index_warnings,
    known_splits,
)
from losspool.segmentation.models import UNET, pretrained_weights
from losspool.segmentation.planning.cost import bytes_per_pixel, device_memory, seconds_per_step
from losspool.segmentation.planning.text import Setting, as_yaml
from losspool.segmentation.planning.thickness import thickness

_LARGEST_ZOOM = 2.0
_LAPS = 50  # how often each part of each image is seen
_STEPS = (200, 40_000)
_BATCH = (2, 8)
_MEMORY_USED = 0.5  # the rest is for gradients, the optimizer, the loader and what the allocator does not give back
_SCALES = (0.5, 0.8)  # bounds of the smallest random scale
_NO_SPLIT = "null"
_TIME_USED = 0.8  # the rest is for reading, validation and checkpoints


@dataclass(frozen=True)
class Device:
    """What a kind of device can do in reasonable time."""

    name: str
    network: str
    backbone: str
    cell: int
    """Pixels per cell of the network's logits."""
    pixels: float
    """Pixels of an image beyond which it is made smaller."""
    crop: int
    """Largest side of a crop."""
    step: float
    """Pixels per step that are enough; memory may allow less."""


_CPU = Device("CPU", "fpn_mobilenetv2", "mobilenetv2", 4, 0.5e6, 320, 4 * 320**2)
_GPU = Device("GPU", "deeplabv3plus_resnet50", "resnet50", 4, 2e6, 512, 8 * 512**2)
_UNET_CELL = 2


@dataclass(frozen=True)
class PlanOptions:
    """What the user may say about a plan."""

    train: str = "train"
    val: str | None = None
    """``null`` for none. By default ``val``, or none if the training split is the only one."""
    weights: Path | None = None
    scratch: bool = False
    minutes: float | None = None
    memory: float | None = None
    """In GB."""
    threads: int | None = None
    """CPU threads of the training, and so of the step that is timed."""
    reading: Reading = field(default_factory=Reading)
    """How image files are read."""


@dataclass(frozen=True)
class Facts:
    """What the plan is made from."""

    images: int
    height: int
    width: int
    classes: tuple[str, ...]
    thick: tuple[float, ...]
    """Median thickness of each class in pixels; NaN for one without pixels."""
    shares: tuple[float, ...]
    """Share of the labelled pixels of each class."""

    @classmethod
    def of(cls, dataset: Dataset, index: ClassIndex) -> Facts:
        height, width = (int(side) for side in np.median(index.sizes[index.sizes.min(1) > 0], axis=0))
        pixels = index.pixels.sum(0)
        names = tuple(info.name for info in dataset.classes)
        usable = int((index.sizes.min(1) > 0).sum())
        return cls(usable, height, width, names, tuple(thickness(dataset, index)), tuple(pixels / pixels.sum()))

    @property
    def thicknesses(self) -> list[tuple[str, float]]:
        return list(zip(self.classes, self.thick, strict=True))

    @property
    def thinnest(self) -> tuple[str, float]:
        place = int(np.nanargmin(self.thick))
        return self.classes[place], float(self.thick[place])

    @property
    def rarest(self) -> tuple[str, float]:
        place = min((place for place, share in enumerate(self.shares) if share), key=lambda place: self.shares[place])
        return self.classes[place], self.shares[place]


@dataclass(frozen=True)
class Plan:
    """Settings with their reasons."""

    settings: tuple[Setting, ...]
    header: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = ()
    """What the labels would silently make wrong."""
    faults: int = 0
    """Images whose label is missing or broken."""

    def __getitem__(self, key: str) -> Any:
        return next(setting.value for setting in self.settings if setting.key == key)


def write_plan(name: str, root: Path, out: Path, options: PlanOptions) -> Plan:
    """``losspool plan``: write the recipe and print its reasons."""
    existing_folder(out.parent, "the folder of --out")
    for option, number in (("--minutes", options.minutes), ("--memory", options.memory)):
        if number is not None and not number > 0:
            raise UserError(f"{option} must be greater than 0, got {number:g}")
    if options.scratch and options.weights is not None:
        raise UserError(f"--scratch plans a network without weights; drop it or --weights {options.weights}")
    known = known_splits(name, root)
    if out.exists():
        raise UserError(f"{out}: the file exists; name another one with --out")
    val = options.val or ("val" if set(known) - {options.train} else _NO_SPLIT)
    for option, split in (("--train", options.train), ("--val", val)):
        if split not in known and (option, split) != ("--val", _NO_SPLIT):
            none = f", or {_NO_SPLIT} for none" if option == "--val" else ""
            raise UserError(f"{root}: unknown split {split!r}; choose from {', '.join(known)} with {option}{none}")
    data = DataConfig(
        name=name,
        root=os.path.abspath(root),
        train=options.train,
        val=None if val == _NO_SPLIT else val,
        exif=options.reading.exif,
        intensity=options.reading.intensity,
    )
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    plan = make_plan(data, out, options)
    with replacing(out) as partial:
        partial.write_text(as_yaml(plan.header, plan.settings), encoding="utf-8")
    load_config(out)
    for setting in plan.settings:
        print(plain(f"{setting.key} = {setting.text}" + (f": {setting.reason}" if setting.reason else "")))
    for warning in plan.warnings:
        print(plain(f"warning: {warning}"))
    check = shlex.join(["losspool", "data", "check", name, str(root), *options.reading.settings])
    first = f"{check}, then " if plan.faults else ""
    print(plain(f"next: {first}{_command(shlex.quote(str(out)), options)}"))
    return plan


def _command(recipe: str, options: PlanOptions) -> str:
    return f"losspool train {recipe}" + (f" --threads {options.threads}" if options.threads is not None else "")


def make_plan(data: DataConfig, out: Path, options: PlanOptions) -> Plan:
    """Propose a recipe. Images with a broken label are left out."""
    dataset = data.open(data.train)
    faults: list[UserError] = []
    index = class_index(dataset, None, faults.append)
    if not index.pixels.any():
        raise UserError(f"{dataset.name}: no label can be read, or every pixel is void; run losspool data check")
    facts, device = Facts.of(dataset, index), _GPU if torch.cuda.is_available() else _CPU
    network, cell = (UNET, _UNET_CELL) if options.scratch else (device.network, device.cell)
    weights = None if options.scratch else pretrained_weights(device.backbone, options.weights)
    zoom = _zoom(facts, device, cell)
    crop = _crop(facts, device, zoom.value)
    per_pixel = bytes_per_pixel(network, len(facts.classes))
    memory = device_memory() if options.memory is None else options.memory * 1e9
    batch = _batch(crop.value, per_pixel, memory, device)
    seconds = seconds_per_step(network, len(facts.classes), crop.value, batch.value)
    steps = _steps(facts, zoom.value, crop.value, batch.value, seconds, options.minutes)
    settings = [
        Setting("recipe", _plain_name(Path(data.root or data.name).name)),
        Setting("method", "lmp_loss_only", _why_lmp(facts)),
        *_data_settings(data, dataset),
        *(zoom, crop, _scale(facts, cell, zoom.value)),
        Setting(
            "data.photometric",
            0.5,
            "other light and colours; data.turns=true adds all turns, for images that have no up",
        ),
        *_network_settings(network, weights, cell),
        Setting("loss.p", 1.3, "the paper's; between 1 and 2.3 our runs on CamVid show no trend"),
        Setting(
            "loss.m",
            {"from": "100%", "to": "25%", "steps": max(steps.value // 2, 1)},
            "the plain mean at first, when the hardest pixels may be noise; later at least a quarter of the pixels "
            "share the weight. Compare it with 25%: see the documentation, Choosing p and m",
        ),
        *(steps, batch),
        *_optimisation(steps.value, options.scratch, validated=data.val is not None),
    ]
    minutes = steps.value * seconds / _TIME_USED / 60
    header = (
        f"Planned for {counted(facts.images, 'image')} of {facts.width}×{facts.height} with "
        f"{counted(len(facts.classes), 'class', 'classes')}.",
        "",
        f"  {_command(str(out), options)}",
        "",
        f"Duration: about {counted(max(round(minutes), 1), 'minute')} on this machine ({device.name}): "
        f"a step took {seconds:.2g} s.",
        f"Thickness in pixels: {', '.join(_thick(*each) for each in facts.thicknesses)}.",
    )
    warnings = index_warnings(dataset, index)
    if faults:
        warnings.insert(0, f"{counted(len(faults), 'image')} cannot be used, such as {faults[0]}")
    return Plan(tuple(settings), header, tuple(warnings), len(faults))


def _thick(name: str, thick: float) -> str:
    return f"{name} in no image" if math.isnan(thick) else f"{name} {thick:.3g}"


def _zoom(facts: Facts, device: Device, cell: int) -> Setting:
    """As small as the device needs it, and no smaller than the thinnest class allows."""
    name, thin = facts.thinnest
    affordable = min(1.0, math.sqrt(device.pixels / (facts.height * facts.width)))
    needed = cell / thin
    zoom = min(max(affordable, needed), _LARGEST_ZOOM) if affordable < 1 or needed > 1 else 1.0
    zoom = min(math.ceil(zoom * 8 - 1e-9) / 8, _LARGEST_ZOOM)
    wide = f"the thinnest class, {name}, is {thin:.3g} pixels wide, a cell of the network {cell} of a zoomed image"
    if needed > zoom:
        return Setting("data.zoom", zoom, f"{wide}: more than it is even at this size, so expect it to be learnt badly")
    reason = "images this large would take long" if affordable < 1 and zoom < 1 else "full size"
    return Setting("data.zoom", zoom, f"{reason if zoom <= 1 else 'enlarged'}; {wide}")


def _crop(facts: Facts, device: Device, zoom: float) -> Setting:
    height, width = (min(math.ceil(side * zoom / 32) * 32, device.crop) for side in (facts.height, facts.width))
    return Setting(
        "data.crop", (height, width), f"zoomed images are {facts.width * zoom:.0f}×{facts.height * zoom:.0f}"
    )


def _scale(facts: Facts, cell: int, zoom: float) -> Setting:
    fills = cell / (facts.thinnest[1] * zoom)
    low = round(min(max(fills, _SCALES[0]), _SCALES[1]), 2)
    if fills > _SCALES[1]:
        reason = f"the thinnest class fills a cell from scale {fills:.3g} on, but crops need a range of scales"
    else:
        reason = "no smaller, so that the thinnest class still fills a cell" if low > _SCALES[0] else ""
    return Setting("data.scale", (low, 1.5), reason)


def _batch(crop: tuple[int, int], per_pixel: float, memory: float, device: Device) -> Setting:
    pixels = crop[0] * crop[1]
    allowed = int(memory * _MEMORY_USED / (per_pixel * pixels))
    if allowed < _BATCH[0]:
        raise UserError(
            f"{memory / 1e9:.2g} GB of memory are too little for {_BATCH[0]} crops of {crop[0]}×{crop[1]}: these need "
            f"{_BATCH[0] * pixels * per_pixel / _MEMORY_USED / 1e9:.2g} GB"
        )
    enough = max(round(device.step / pixels), _BATCH[0])
    batch = min(allowed, enough, _BATCH[1])
    reason = f"{per_pixel * pixels / 1e6:.0f} MB per crop, and {memory / 1e9:.3g} GB of memory"
    return Setting("train.batch", batch, reason)


def _steps(
    facts: Facts, zoom: float, crop: tuple[int, int], batch: int, seconds: float, minutes: float | None
) -> Setting:
    crops = facts.images * max(facts.height * facts.width * zoom**2 / (crop[0] * crop[1]), 1.0)
    steps = int(min(max(_LAPS * crops / batch, _STEPS[0]), _STEPS[1]))
    reason = f"about {steps * batch / crops:.0f} times every part of {counted(facts.images, 'image')}"
    if minutes is not None and steps * seconds > minutes * 60 * _TIME_USED:
        steps = max(int(minutes * 60 * _TIME_USED / seconds), 1)
        reason = f"what fits into {minutes:g} minutes; without a limit, {_LAPS} times every part of each image"
    return Setting("train.steps", steps, reason)


def _why_lmp(facts: Facts) -> str:
    name, share = facts.rarest
    return f"weights the pixels with the largest losses; the rarest class, {name}, has {percent(share)} of the pixels"


def _data_settings(data: DataConfig, dataset: Dataset) -> list[Setting]:
    found = [Setting("data.name", data.name), Setting("data.root", data.root)]
    without = "" if data.val else "no validation: the last checkpoint is the result"
    found += [Setting("data.train", data.train), Setting("data.val", data.val, without)]
    if data.exif != "apply":
        found.append(Setting("data.exif", data.exif, "as requested"))
    if data.intensity != "auto":
        found.append(Setting("data.intensity", data.intensity, "as requested"))
    elif isinstance(dataset, HasReading) and isinstance(dataset.reading.intensity, tuple):
        found.append(Setting("data.intensity", dataset.reading.intensity, "the range of the values in the images"))
    return found


def _network_settings(network: str, weights: Path | None, cell: int) -> list[Setting]:
    if weights is None:
        return [Setting("model.name", network, f"small enough to train from scratch; logits at 1/{cell}")]
    return [
        Setting("model.name", network, f"with a decoder: logits at 1/{cell}"),
        Setting("model.weights", str(weights.absolute()), "trained on ImageNet"),
        Setting("model.batch_norm", "train", "the decoder's own layers start fresh"),
    ]


def _optimisation(steps: int, scratch: bool, validated: bool) -> list[Setting]:
    every = max(steps // 5, 1)
    return [
        Setting("train.optimizer", "adamw"),
        Setting("train.lr", 1e-3 if scratch else 3e-4),
        *([] if scratch else [Setting("train.head_factor", 5.0, "the head is new, the backbone is not")]),
        Setting("train.weight_decay", 0.02),
        Setting("train.schedule", "cosine"),
        Setting("train.warmup", min(max(steps // 20, 1), 200), "the head is random at first"),
        Setting("train.clip", 1.0, "one bad batch does not spoil the weights"),
        *([Setting("train.validate_every", every)] if validated else []),
        Setting("train.checkpoint_every", every),
    ]


def _plain_name(name: str) -> str:
    """A name for the run's folder."""
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).strip(".")
    return kept or "data"

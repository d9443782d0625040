"""What data and sampling cost: steps to be timed, each made in the process that runs it."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from losspool.segmentation.config import LossConfig, SamplingConfig
from losspool.segmentation.data import (
    Augmentation,
    ClassIndex,
    FileDataset,
    Pair,
    build_index,
    contiguous,
    open_dataset,
)
from losspool.segmentation.losses import Criterion
from losspool.segmentation.models import build_model
from losspool.segmentation.prediction import confusion
from losspool.segmentation.training import CropDataset, CropSampler, RunningIoU

Run = Callable[[], object]
_BATCH, _SIDE, _CLASSES = 4, 320, 11  # the CamVid recipe's


def _frame() -> FileDataset:
    """One frame of Cityscapes' size as PNG files: photographs are not at hand, generated ones have noise too."""
    holder = tempfile.TemporaryDirectory()
    atexit.register(holder.cleanup)
    folder = Path(holder.name)
    scene = open_dataset("streets", None, "train", size=(1024, 2048), count=1)
    image, label = folder / "image.png", folder / "label.png"
    scene.image(0).save(image)
    Image.fromarray(scene.label(0)).save(label)
    return FileDataset("frame", scene.classes, contiguous(len(scene.classes)), [Pair("frame", image, label)])


def crop_step() -> Run:
    """Draw, read, cut, scale and flip."""
    dataset = _frame()
    sampler = CropSampler(build_index(dataset), SamplingConfig(), seed=0)
    crops, number = CropDataset(dataset, Augmentation((550, 550))), count()

    def run() -> object:
        (draw,) = sampler.step(next(number) % 32, 1)
        return crops[draw]

    return run


def decode_step() -> Run:
    """Pillow alone, on the same two files."""
    (pair,) = _frame().pairs
    assert pair.label is not None

    def run() -> object:
        images = [Image.open(path) for path in (pair.image, pair.label)]
        return [image.load() for image in images]

    return run


def draw_step() -> Run:
    """One draw from 2,975 images with 19 classes, in half of which each class is."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 2, (2975, 19)) * 1000
    starts = np.concatenate([[0], np.cumsum(np.minimum(pixels, 64).ravel())])
    positions = np.zeros((starts[-1], 2), np.int32)
    index = ClassIndex(pixels, np.full((2975, 2), 1024), starts, positions)
    sampler, number = CropSampler(index, SamplingConfig(), seed=0), count()
    return lambda: sampler.step(next(number) % 32, 1)


def training_step() -> Run:
    """Forward, loss, backward and update of the CamVid recipe."""
    module = build_model("deeplabv2_mobilenetv2", _CLASSES, output_stride=16, batch_norm="frozen").module
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-6, momentum=0.9)
    criterion = Criterion(LossConfig())
    images, labels = torch.randn(_BATCH, 3, _SIDE, _SIDE), _labels()

    def run() -> object:
        optimizer.zero_grad()
        result = criterion(module(images), labels)
        result.loss.backward()
        optimizer.step()
        return result.loss.item()

    return run


def running_iou_step() -> Run:
    """The counts of one batch, and the IoU from them."""
    running, labels = RunningIoU(_CLASSES, decay=0.99, lag=32), _labels()
    prediction = _labels().long()
    steps = count(1)

    def run() -> object:
        running.observe(confusion(prediction, labels, _CLASSES))
        return running.after(next(steps))

    return run


def trainer_times(rounds: int) -> tuple[list[float], list[float]]:
    """Seconds per step outside of forward, loss, backward and optimiser, and of the whole step, every five steps.

    The CamVid recipe as a user runs it, two loader workers included, on generated frames of CamVid's size.
    """
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        scenes = open_dataset("streets", None, "train", size=(360, 480), count=24)
        classes = [
            {"name": info.name, "id": label, "color": list(info.color)} for label, info in enumerate(scenes.classes)
        ]
        (root / "classes.yaml").write_text(json.dumps({"classes": classes, "ignore": 255}))  # JSON is YAML
        for kind in ("images", "labels"):
            for split in ("train", "val"):
                (root / kind / split).mkdir(parents=True)
        for index in range(len(scenes)):
            split = "train" if index else "val"
            scenes.image(index).save(root / "images" / split / f"{index}.jpg", quality=90)
            Image.fromarray(scenes.label(index)).save(root / "labels" / split / f"{index}.png")
        overrides = ["data.name=folder", f"data.root={root}", f"data.cache={root / 'cache'}", "model.weights=null"]
        overrides += ["model.batch_norm=frozen", "train.lr=1e-6", f"train.steps={5 * rounds + 10}", "train.log_every=5"]
        command = [sys.executable, "-m", "losspool", "train", "camvid", *overrides, "--out", str(root / "run")]
        subprocess.run(command, check=True, capture_output=True)
        lines = [json.loads(line) for line in (root / "run" / "metrics.jsonl").read_text().splitlines()]
    clock = [line["time"] for line in lines if line["split"] == "train"][1:]  # the first waits for the workers
    spans = [
        ((later["seconds"] - now["seconds"]) / 5, (later["compute"] - now["compute"]) / 5)
        for now, later in pairwise(clock)
    ]
    return [whole - compute for whole, compute in spans], [whole for whole, _ in spans]


def _labels() -> torch.Tensor:
    return torch.randint(0, _CLASSES, (_BATCH, _SIDE, _SIDE)).to(torch.uint8)

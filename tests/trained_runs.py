"""Folders of runs as the trainer leaves them, without training; and the commands that use them."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from losspool.segmentation.config.recipes import dump_config
from losspool.segmentation.config.schema import Config, DataConfig, ModelConfig
from losspool.segmentation.models import build_model
from losspool.segmentation.models.preprocessing import IMAGENET
from losspool.segmentation.runs.checkpoints import write_checkpoint
from losspool.segmentation.runs.folder import RunFolder
from small_data import write_folder

DEEPLAB = ModelConfig("deeplabv2_mobilenetv2", output_stride=16)
TINY = ModelConfig("tiny_model.build")
MODEL = ("--model", "tiny_model.build")
"""What a command needs to open a run of it."""


def small_config(root: Path, **changes) -> Config:
    """On the small folder dataset, written to ``root`` if it is not there."""
    if not root.exists():
        write_folder(root, "train", count=2)
        write_folder(root, "val", count=3, size=(37, 61))
    return Config(**{"data": DataConfig("folder", str(root)), "model": TINY, **changes})


def write_run(path: Path, config: Config, steps: tuple[int, ...] = (5,), split: str = "train", **changes) -> RunFolder:
    """A run whose networks are random, but say something: every checkpoint another one."""
    folder = RunFolder(path)
    path.mkdir(parents=True, exist_ok=True)
    folder.config.write_text(dump_config(config), encoding="utf-8")
    lines = [{"step": step, "split": "val", "miou": 0.5} for step in steps]
    folder.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    classes = config.data.open(split).classes
    for step in steps:
        torch.manual_seed(step)
        model = build_model(config.model.name, len(classes), output_stride=config.model.output_stride)
        enliven(model.module)
        content = {
            "step": step,
            "model": model.module.state_dict(),
            "spec": model.spec.to_dict(),
            "classes": [{"name": info.name, "color": list(info.color)} for info in classes],
            "config": dump_config(config),
            "best": {"step": steps[0], "miou": 0.5},
            "validated": step,
        }
        write_checkpoint(folder.checkpoints, step, {**content, **changes})
    return folder


def enliven(module: nn.Module) -> None:
    """Statistics of pictures for BatchNorm, and loud logits without favourites: fresh networks say nearly nothing."""
    pictures = torch.from_numpy(np.stack([random_image(64, 64, seed) for seed in (100, 101)]))
    images = IMAGENET.apply(pictures)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None
    with torch.no_grad():
        module.train()(images)
        logits = module.eval()(images)
        loudness = 3 / logits.std((0, 2, 3))
        heads = [
            part for part in module.modules() if isinstance(part, nn.Conv2d) and part.out_channels == len(loudness)
        ]
        for head in heads:
            head.weight *= loudness.view(-1, 1, 1, 1)
            head.bias *= loudness
        heads[-1].bias -= logits.mean((0, 2, 3)) * loudness


def assert_mistake(result, words: str) -> None:
    """One sentence on standard error and exit code 2."""
    code, output, error = result
    assert code == 2, error
    assert error.startswith("error: ")
    assert words in error
    assert error.count("\n") == 1
    assert output == ""


def random_image(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth noise, so that networks that pool see something."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (height // 4 + 2, width // 4 + 2, 3))
    return np.kron(coarse, np.ones((4, 4, 1)))[:height, :width].astype(np.uint8)


def picture(path: Path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
        return image


def written(folder: Path) -> set[str]:
    """The files below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

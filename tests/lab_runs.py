"""Folders of runs as the trainer leaves them, with made-up numbers: what the lab reads, without any training."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from losspool.lab.comparison import Statistics, compare
from losspool.lab.comparison.runs import find_runs
from losspool.segmentation.config.schema import METHODS, Config, DataConfig, LossConfig, SamplingConfig, TrainConfig
from losspool.segmentation.data.protocol import ClassInfo
from losspool.segmentation.prediction.pictures import palette_image, save_png
from losspool.segmentation.runs.folder import RunFolder, write_config
from losspool.segmentation.training.validation import WEIGHT_UNIT

CLASSES = (
    ClassInfo("road", (128, 64, 128)),
    ClassInfo("building", (70, 70, 70)),
    ClassInfo("pole", (153, 153, 153)),
    ClassInfo("traffic sign", (220, 220, 0)),
    ClassInfo("rider", (255, 0, 0)),
)
PIXELS = (400_000, 350_000, 6_000, 1_500, 400)
LOOKS = ("car/day", "car/night")
IMAGES = (
    *(f"0001TP_{number:06d}" for number in range(8550, 8550 + 30 * 26, 30)),
    *(f"Seq05VD_f{number:05d}" for number in range(0, 30 * 44, 30)),
)
"""Two sequences, as in CamVid's test images."""


def lab_config(method: str = "base", seed: int = 0, **changes) -> Config:
    """``p``, ``m`` and ``lr`` by name; everything else as a field of Config."""
    preset = METHODS[method]
    loss = LossConfig(preset["loss.name"], changes.pop("p", 1.3), changes.pop("m", "25%"))
    sampling = SamplingConfig(mix=preset.get("sampling.mix", 0.5))
    train = TrainConfig(steps=60, validate_every=10, keep_steps=(40, 50, 60), lr=changes.pop("lr", 0.01), previews=2)
    config = Config("made-up", method, seed, data=DataConfig("streets"), loss=loss, sampling=sampling, train=train)
    return replace(config, **changes)


def write_lab_run(
    path: Path, config: Config, *, classes=CLASSES, level: float = 0.4, previews: bool = True, absent: int | None = None
) -> RunFolder:
    """A finished run whose scores rise to about ``level``; the class ``absent`` occurs nowhere."""
    folder = RunFolder(path)
    path.mkdir(parents=True)
    write_config(folder, config)
    random = np.random.default_rng([config.seed, len(config.method), round(100 * level)])
    steps, count = config.train.steps, len(classes)
    pixels = [0 if index == absent else PIXELS[index % len(PIXELS)] for index in range(count)]
    lines = []
    for step in range(10, steps + 1, 10):
        done = step / steps
        ious = np.clip(level * done + np.linspace(0.4, -0.1, count) + random.normal(0, 0.02, count), 0, 1)
        running, mass, drawn = ious * 0.9, random.dirichlet(np.ones(count)), random.dirichlet(np.ones(count))
        lines.append(
            {
                "step": step,
                "split": "train",
                "loss": float(2 - done + random.normal(0, 0.1)),
                "alpha": float(3 - 2 * done),
                "saturated": float(0.05 + 0.02 * done),
                "mass": mass.tolist(),
                "lr": config.train.lr * (1 - done) ** 0.9,
                "miou": float(running.mean()),
                "iou": running.tolist(),
                "probabilities": drawn.tolist(),
                "time": {"seconds": step * 0.1, "compute": step * 0.08},
            }
        )
        scored = [None if index == absent else float(value) for index, value in enumerate(ious)]
        present = [value for value in scored if value is not None]
        lines.append(
            {
                "step": step,
                "split": "val",
                "miou": float(np.mean(present)),
                "iou": scored,
                "pixels": pixels,
                "recall_per_look": {look: float(random.uniform(0.2, 0.9)) for look in LOOKS},
                "time": {"validation": 1.0},
            }
        )
        if previews:
            _write_previews(folder, config, step, classes, random)
    folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    best = max((line for line in lines if line["split"] == "val"), key=lambda line: line["miou"])
    description = {
        "version": "0",
        "commit": "c0ffee",
        "torch": "2.13.0",
        "machine": "Linux x86_64",
        "device": "CPU",
        "threads": 1,
        "seed": config.seed,
        "classes": [{"name": info.name, "color": list(info.color)} for info in classes],
        "start": "2026-01-01T00:00:00+00:00",
        "status": "finished",
        "end": "2026-01-01T00:10:00+00:00",
        "step": steps,
        "best": {"step": best["step"], "miou": best["miou"]},
    }
    folder.description.write_text(json.dumps(description), encoding="utf-8")
    return folder


def _write_previews(folder: RunFolder, config: Config, step: int, classes, random) -> None:
    height, width = 48, 64
    for number in range(config.train.previews):
        labels = np.zeros((height, width), np.uint8)
        labels[:20] = 1
        labels[10:40, 30 + number : 34 + number] = 2
        stem = folder.previews / f"{number:02d}"
        if step == 10:
            picture = np.kron(labels[..., None] * 40 + 30, np.ones((1, 1, 3))).astype(np.uint8)
            save_png(Image.fromarray(picture), stem.with_name(f"{stem.name}-image.png"))
            save_png(palette_image(labels, classes), stem.with_name(f"{stem.name}-label.png"))
        wrong = random.random((height, width)) > step / config.train.steps
        prediction = np.where(wrong, 0, labels).astype(np.uint8)
        save_png(palette_image(prediction, classes), stem.with_name(f"{stem.name}-step-{step:07d}.png"))
        weights = np.where(wrong, 4.0, 0.5) * WEIGHT_UNIT
        grey = Image.fromarray(weights.clip(0, 255).astype(np.uint8))
        save_png(grey, stem.with_name(f"{stem.name}-step-{step:07d}-weights.png"))
    names = [f"scene {number}" for number in range(config.train.previews)]
    (folder.previews / "names.json").write_text(json.dumps(names), encoding="utf-8")


def write_lab(root: Path, *, seeds=(0, 1, 2), evaluated=(), **options) -> Path:
    """``base`` and ``lmp`` with some seeds, and lmp a little better; ``evaluated`` at these steps on test images."""
    for method, level in (("base", 0.35), ("lmp", 0.42)):
        for seed in seeds:
            config = lab_config(method, seed)
            folder = write_lab_run(root / f"{method}-s{seed}", config, level=level, **options)
            if evaluated:
                write_lab_evaluation(folder, config, level=level, steps=evaluated)
    return root


def write_lab_evaluation(folder: RunFolder, config: Config, *, level: float, steps=(60,), images=IMAGES) -> Path:
    """Scores on single test images: ``level`` is the share of the pixels that are right."""
    entries = []
    for step in steps:
        random = np.random.default_rng([config.seed, len(config.method), step])
        per_image, total = [], np.zeros((len(CLASSES), len(CLASSES)), np.int64)
        for place, name in enumerate(images):
            labelled = np.random.default_rng(place).multinomial(5000, np.array(PIXELS) / sum(PIXELS))
            rights = np.clip(level + random.normal(0, 0.1, len(CLASSES)), 0, 1)
            chances = np.eye(len(CLASSES)) * rights[:, None] + (1 - rights[:, None]) / len(CLASSES)
            matrix = random.multinomial(labelled, chances)
            hits, predicted = np.diagonal(matrix), matrix.sum(0)
            counts = {"hits": hits.tolist(), "labelled": labelled.tolist(), "predicted": predicted.tolist()}
            per_image.append({"image": name, **counts})
            total += matrix
        iou = (np.diagonal(total) / (total.sum(0) + total.sum(1) - np.diagonal(total))).tolist()
        entry = {"step": step, "miou": float(np.mean(iou)), "iou": iou, "pixels": total.sum(1).tolist()}
        entries.append({**entry, "confusion": total.tolist(), "per_image": per_image})
    path = folder.path / f"evaluation-test-none-{'+'.join(map(str, steps))}.json"
    path.write_text(json.dumps({"video": True, "checkpoints": entries}), encoding="utf-8")
    return path


def without_validation(root: Path) -> Path:
    """All runs of the folder as if they had been trained with ``data.val=null``."""
    for path in root.rglob("config.yaml"):
        text = path.read_text(encoding="utf-8")
        assert text.count("\n  val: val\n") == 1
        path.write_text(text.replace("\n  val: val\n", "\n  val: null\n"), encoding="utf-8")
        metrics = RunFolder(path.parent).metrics
        lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        metrics.write_text("".join(line for line in lines if '"split": "val"' not in line), encoding="utf-8")
    return root


def statistics_of(root: Path, **options) -> Statistics:
    """Of all runs in the folder; options as ``compare`` takes them."""
    return Statistics(compare(find_runs([root]), **options))

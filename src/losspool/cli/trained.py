"""The commands that use a trained run: evaluate, predict, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="Run folder.")]
Tiling = Annotated[str | None, typer.Option(help="Tile images: none, efficient or optimized (default: the run's).")]
Scales = Annotated[str | None, typer.Option(help="Average predictions at these scales, such as 0.5,1.0,1.5.")]
Flip = Annotated[bool | None, typer.Option("--flip/--no-flip", help="Average with the mirrored image's prediction.")]
Trusted = Annotated[
    list[str] | None,
    typer.Option("--trust", "--model", help="Allow code: import path of a network, dataset or loss; repeatable."),
]
OneCheckpoint = Annotated[str, typer.Option(help="Use checkpoint last, best or a step.")]


def evaluate(
    run: Run,
    tiling: Tiling = None,
    split: Annotated[str | None, typer.Option(help="Split to score (default: the run's validation split).")] = None,
    checkpoint: Annotated[str, typer.Option(help="Score last, best, or steps such as 150000,160000.")] = "last",
    scales: Scales = None,
    flip: Flip = None,
    trust: Trusted = None,
) -> None:
    """Score checkpoints of a run on a split: IoU per class, mean IoU, and mean ± std over checkpoints."""
    from losspool.segmentation.prediction import TrainedRun, changed, evaluate_run, report_evaluation

    opened = TrainedRun.open(run, trust or ())
    settings = changed(opened.config.evaluate, tiling=tiling, scales=scales, flip=flip)
    steps = opened.steps(checkpoint)
    report_evaluation(opened.folder, evaluate_run(opened, steps, split or opened.config.data.val, settings))


def predict(
    run: Run,
    out: Annotated[Path, typer.Option(help="Output folder.")],
    source: Annotated[Path | None, typer.Argument(help="Image, or folder to search for images.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="Write index, palette, overlay or cityscapes; comma-separated.")
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Also write loss-weight maps.")] = False,
    split: Annotated[str | None, typer.Option(help="Predict images of this split of the run's data.")] = None,
    name: Annotated[list[str] | None, typer.Option(help="Predict only this image of the split; repeatable.")] = None,
    checkpoint: OneCheckpoint = "last",
    tiling: Tiling = None,
    scales: Scales = None,
    flip: Flip = None,
    trust: Trusted = None,
) -> None:
    """Predict images, and with --weights map the loss weights of labelled images."""
    from losspool.segmentation.prediction import TrainedRun, changed, predict_run

    opened = TrainedRun.open(run, trust or ())
    settings = changed(opened.config.evaluate, tiling=tiling, scales=scales, flip=flip)
    whole = predict_run(
        opened, checkpoint, settings, out, formats, source=source, split=split, names=name, weights=weights
    )
    raise typer.Exit(0 if whole else 1)


def export(
    run: Run,
    path: Annotated[Path, typer.Argument(help="File to write: .onnx or .pt2.")],
    size: Annotated[str | None, typer.Option(help="Height and width, such as 512,1024 (default: any size).")] = None,
    checkpoint: OneCheckpoint = "last",
    trust: Trusted = None,
) -> None:
    """Export the network to ONNX or torch.export, and check the file against the network."""
    from losspool.segmentation.base import plain
    from losspool.segmentation.prediction import TrainedRun, export_run, parse_size

    trained = TrainedRun.open(run, trust or ()).load_one(checkpoint)
    difference = export_run(trained, path, None if size is None else parse_size(size))
    print(plain(f"{path}: uint8 images (B, H, W, 3) to logits (B, {len(trained.classes)}, H, W)"))
    print(f"Largest difference from the network: {difference:.3g}")
    if trained.config.data.zoom != 1:
        print(f"The network was trained on images at {trained.config.data.zoom:g} times their size: resize yours too.")

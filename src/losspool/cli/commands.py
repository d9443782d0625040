"""Train, evaluate, predict, export, and the commands on datasets: each reads its arguments and makes one call."""

from __future__ import annotations

import os
import shlex
import sys
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
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads (default: all cores).")]
Reading = Annotated[
    list[str] | None, typer.Argument(help="How to read the files, such as data.exif=ignore data.intensity=full.")
]
OneCheckpoint = Annotated[str, typer.Option(help="Use checkpoint last, best or a step.")]


def evaluate(
    run: Run,
    tiling: Tiling = None,
    split: Annotated[str | None, typer.Option(help="Split to score (default: the run's validation split).")] = None,
    checkpoint: Annotated[str, typer.Option(help="Score last, best, or steps such as 150000,160000.")] = "last",
    scales: Scales = None,
    flip: Flip = None,
    confusion: Annotated[bool, typer.Option("--confusion", help="Also print the confusion matrix.")] = False,
    threads: Threads = None,
    trust: Trusted = None,
) -> None:
    """Score checkpoints of a run on a split: IoU, Dice, precision, recall, and IoU by region; mean ± std."""
    from losspool.segmentation.prediction import report_evaluation

    _use_threads(threads)
    report_evaluation(
        run,
        checkpoint,
        split,
        confusion=confusion,
        trusted=trust or (),
        tiling=tiling,
        scales=scales,
        flip=flip,
    )


def predict(
    run: Run,
    out: Annotated[Path, typer.Option(help="Output folder.")],
    source: Annotated[Path | None, typer.Argument(help="Image, or folder to search for images.")] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format", help="Write index, ids, palette, overlay or cityscapes (comma-separated or repeated)."
        ),
    ] = None,
    ids: Annotated[
        bool | None, typer.Option("--ids/--no-ids", help="Write your own label values (default: for folder data).")
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Also write loss-weight maps.")] = False,
    split: Annotated[str | None, typer.Option(help="Predict images of this split of the run's data.")] = None,
    name: Annotated[list[str] | None, typer.Option(help="Predict only this image of the split; repeatable.")] = None,
    checkpoint: OneCheckpoint = "last",
    tiling: Tiling = None,
    scales: Scales = None,
    flip: Flip = None,
    threads: Threads = None,
    trust: Trusted = None,
) -> None:
    """Predict images, and with --weights map the loss weights of labelled images."""
    from losspool.segmentation.prediction import predict_run

    _use_threads(threads)
    whole = predict_run(
        run,
        checkpoint,
        out,
        formats,
        source=source,
        split=split,
        names=name,
        weights=weights,
        ids=ids,
        trusted=trust or (),
        tiling=tiling,
        scales=scales,
        flip=flip,
    )
    raise typer.Exit(0 if whole else 1)


def _use_threads(count: int | None) -> None:
    import torch

    if count is not None:
        torch.set_num_threads(count)


def export(
    run: Run,
    path: Annotated[Path, typer.Argument(help="File to write: .onnx or .pt2.")],
    size: Annotated[str | None, typer.Option(help="Height and width, such as 512,1024 (default: any size).")] = None,
    checkpoint: OneCheckpoint = "last",
    trust: Trusted = None,
) -> None:
    """Export the network to ONNX or torch.export, and check the file against the network."""
    from losspool.segmentation.prediction import report_export

    report_export(run, checkpoint, path, size, trust or ())


def train(
    recipe: Annotated[str, typer.Argument(help="Recipe by name or file, or a run's config.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings such as method=lmp loss.p=1.5 train.steps=500.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/<data>-<recipe>-<method>-<seed>).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run, or start it if it does not exist.")] = False,
    threads: Threads = None,
) -> None:
    """Train a network."""
    from losspool.segmentation.training import train_run

    train_run(recipe, overrides or [], out, resume=resume, threads=threads)


def config(
    name: Annotated[str, typer.Argument(help="Section or part of a name, such as train or crop (default: all).")] = "",
) -> None:
    """Print every setting of a recipe with its default and meaning."""
    from losspool.segmentation.config import report_options

    report_options(name)


def recipes(context: typer.Context) -> None:
    """List the recipes of `losspool train` and the grids of `losspool lab run`."""
    from losspool.lab.library import report_recipes

    if context.invoked_subcommand is None:
        report_recipes()


def show_recipe(name: Annotated[str, typer.Argument(help="Recipe or grid to print.")]) -> None:
    """Print a recipe or grid, as a starting point for your own."""
    from losspool.lab.library import report_recipe

    report_recipe(name)


def plan(
    root: Annotated[Path, typer.Argument(help="Data folder.")],
    overrides: Reading = None,
    out: Annotated[Path, typer.Option(help="Recipe to write.")] = Path("recipe.yaml"),
    name: Annotated[str, typer.Option(help="Dataset: folder, cityscapes, voc, camvid, or an import path.")] = "folder",
    train: Annotated[str, typer.Option(help="Split to train on.")] = "train",
    val: Annotated[
        str | None, typer.Option(help="Split to validate on, or null for none (default: val, if there is one).")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="File of ImageNet weights, or its folder.")] = None,
    scratch: Annotated[bool, typer.Option("--scratch", help="Train from scratch, without ImageNet weights.")] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Time to train for, on this machine (default: no limit).")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="Memory to use, in GB (default: what is free).")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads to train with (default: all cores).")] = None,
) -> None:
    """Propose a recipe for a dataset, with reasons, from its class index."""
    from losspool.segmentation.config import parse_reading
    from losspool.segmentation.planning import PlanOptions, write_plan

    reading = parse_reading(overrides or [])
    write_plan(name, root, out, PlanOptions(train, val, weights, scratch, minutes, memory, threads, reading))


def import_data(
    source: Annotated[Path, typer.Argument(help="Folder with images and labels, or with COCO annotations.")],
    dest: Annotated[Path, typer.Argument(help="New folder.")],
    classes: Annotated[
        Path | None,
        typer.Option(help="Classes: classes.yaml, class_dict.csv or a list (default: found in the source)."),
    ] = None,
    images: Annotated[str | None, typer.Option(help="Folder of the images in the source (default: found).")] = None,
    labels: Annotated[str | None, typer.Option(help="Folder of the labels in the source (default: found).")] = None,
    val: Annotated[float | None, typer.Option(help="Share of the images for validation (default: 0.2).")] = None,
    test: Annotated[float, typer.Option(help="Share of the images for testing.")] = 0.0,
    list_file: Annotated[
        list[Path] | None, typer.Option("--list", help="Split by a list of images, such as val.txt; repeatable.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help=r"Keep images together whose names give the same match, such as '(\w+)_\d+'.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Largest distance of a label's colour from that of its class.")
    ] = 0.0,
    copy: Annotated[bool, typer.Option("--copy", help="Copy images (default: link them).")] = False,
    labels_stored: Annotated[
        bool | None,
        typer.Option(
            "--labels-stored/--labels-upright", help="How labels of EXIF-oriented images were drawn (default: by size)."
        ),
    ] = None,
) -> None:
    """Import a download: find its layout, convert labels, divide into splits."""
    from losspool.segmentation.data import ImportOptions, Splitting, report_import

    splitting = Splitting(val, test, tuple(list_file or ()), group)
    options = ImportOptions(classes, images, labels, tolerance, copy, labels_stored, splitting)
    if not report_import(source, dest, options, shlex.join(["losspool", *sys.argv[1:]])):
        raise typer.Exit(1)


def check(
    name: Annotated[str, typer.Argument(help="Your data folder alone, or another dataset's name or import path.")],
    root: Annotated[str | None, typer.Argument(help="Folder of the named dataset (not needed for streets).")] = None,
    overrides: Reading = None,
    split: Annotated[str | None, typer.Option(help="Check only this split (default: all splits).")] = None,
) -> None:
    """Read every file of a dataset, list faults and traps, and show how often each class occurs."""
    from losspool.segmentation.config import parse_reading
    from losspool.segmentation.data import report_check

    settings = overrides or []
    if root is not None and "=" in root and not os.path.exists(root):  # the first setting, after a folder alone
        settings = [root, *settings]
        root = None
    if not report_check(name, None if root is None else Path(root), split, parse_reading(settings)):
        raise typer.Exit(1)


def prepare_voc(
    voc: Annotated[Path, typer.Argument(help="VOC 2012 folder, or the folder that contains VOCdevkit.")],
    sbd: Annotated[Path, typer.Option(help="SBD folder (benchmark_RELEASE).")],
) -> None:
    """Build VOC's augmented training set: SegmentationClassAug and the list trainaug.txt."""
    from losspool.segmentation.data import report_prepared_voc

    report_prepared_voc(voc, sbd)

"""The commands that use a trained run: evaluate, predict, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="The folder of the run.")]
Tiling = Annotated[str | None, typer.Option(help="none, efficient or optimized; the run's own if not given.")]
Scales = Annotated[str | None, typer.Option(help="Predict at each of these, such as 0.5,1.0,1.5, and average.")]
Flip = Annotated[bool | None, typer.Option("--flip/--no-flip", help="Average with the mirrored image's prediction.")]
TrustedModel = Annotated[
    str | None, typer.Option("--model", help="The import path of the run's model, if you trust its code.")
]
OneCheckpoint = Annotated[str, typer.Option(help="last, best or a step.")]


def evaluate(
    run: Run,
    tiling: Tiling = None,
    split: Annotated[str | None, typer.Option(help="The run's validation split if not given.")] = None,
    checkpoint: Annotated[str, typer.Option(help="last, best, or steps such as 150000,160000,165000.")] = "last",
    scales: Scales = None,
    flip: Flip = None,
    model: TrustedModel = None,
) -> None:
    """Score checkpoints of a run on a split: IoU per class, their mean, and mean ± std over checkpoints."""
    from rich.console import Console

    from losspool.segmentation.base import plain
    from losspool.segmentation.config import load_config
    from losspool.segmentation.prediction import (
        changed,
        evaluate_run,
        heading,
        look_table,
        run_folder,
        score_table,
        write_evaluation,
    )
    from losspool.segmentation.runs import chosen_steps

    folder = run_folder(run)
    steps, config = chosen_steps(folder, checkpoint), load_config(folder.config)
    settings = changed(config.evaluate, tiling=tiling, scales=scales, flip=flip)
    found = evaluate_run(folder, steps, split or config.data.val, settings, model)
    output = Console(highlight=False)
    try:
        output.print(plain(heading(found)), markup=False, soft_wrap=True)
        output.print(score_table(found))
        looks = look_table(found)
        if looks is not None:
            output.print("", looks, sep="\n")
    finally:  # a folder that cannot be written does not hide the scores, nor does a reader that has gone lose them
        path = write_evaluation(folder, found)
    output.print(plain(f"written: {path}"), markup=False, soft_wrap=True)


def predict(
    run: Run,
    out: Annotated[Path, typer.Option(help="The folder for the pictures.")],
    source: Annotated[Path | None, typer.Argument(help="An image, or a folder that is searched for images.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="index, palette, overlay or cityscapes; several with commas.")
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Also the weights that the run's loss gives.")] = False,
    split: Annotated[str | None, typer.Option(help="Images of this split of the run's data.")] = None,
    name: Annotated[list[str] | None, typer.Option(help="Only this image of the split; may be repeated.")] = None,
    checkpoint: OneCheckpoint = "last",
    tiling: Tiling = None,
    scales: Scales = None,
    flip: Flip = None,
    model: TrustedModel = None,
) -> None:
    """Predict images, or show where the run's loss looks in images that have a label."""
    from rich.console import Console

    from losspool.segmentation.base import UserError, plain, say
    from losspool.segmentation.data import check_classes
    from losspool.segmentation.prediction import (
        WeightMap,
        changed,
        load_one,
        of_files,
        of_split,
        parse_formats,
        predict_images,
        run_folder,
        weigher_of,
        weight_table,
        weight_words,
        with_labels,
    )

    if source is None and split is None and not name:
        raise UserError("name an image or a folder, or images of the run's own data with --split and --name")
    if source is not None and (name or (split is not None and not weights)):
        raise UserError(f"either {source}, or images of the run's own data with --split and --name")
    trained = load_one(run_folder(run), checkpoint, model)
    config = trained.config
    kinds = parse_formats(formats or ["palette", "overlay"], trained.classes, weights)
    if source is None:
        dataset = config.data.open(split or config.data.val)
        check_classes(trained.classes, dataset)
        sources = of_split(dataset, name or [], weights)
    else:
        sources = of_files(source, out)
        if weights:
            datasets = [config.data.open(each) for each in ([split] if split else [config.data.val, config.data.train])]
            for dataset in datasets:
                check_classes(trained.classes, dataset)
            sources = with_labels(sources, datasets)
    predict_image = trained.predictor(changed(config.evaluate, tiling=tiling, scales=scales, flip=flip))
    weigh = weigher_of(config, predict_image) if weights else None
    output = Console(highlight=False)

    def tell(each: str, found: WeightMap) -> None:
        output.print(plain(weight_words(each, found)), markup=False, soft_wrap=True)
        output.print(weight_table(found, trained.classes), "")

    faults = predict_images(predict_image, sources, out, kinds, trained.classes, weigh, tell)
    if faults and len(sources) == 1:
        raise UserError(faults[0])
    for fault in faults:
        say(f"fault: {fault}")
    output.print(plain(f"{len(sources) - len(faults)} images predicted: {out}"), markup=False, soft_wrap=True)
    if faults:
        raise typer.Exit(1)


def export(
    run: Run,
    path: Annotated[Path, typer.Argument(help="The file to write: .onnx or .pt2.")],
    size: Annotated[str | None, typer.Option(help="Height and width, such as 512,1024; any size if not given.")] = None,
    checkpoint: OneCheckpoint = "last",
    model: TrustedModel = None,
) -> None:
    """Write the network as ONNX or as a torch.export program, and check the file against the network."""
    from losspool.segmentation.base import plain
    from losspool.segmentation.prediction import export_run, load_one, parse_size, run_folder

    trained = load_one(run_folder(run), checkpoint, model)
    difference = export_run(trained, path, None if size is None else parse_size(size))
    print(plain(f"{path}: uint8 images (B, H, W, 3) to logits (B, {len(trained.classes)}, H, W)"))
    print(f"Largest difference from the network: {difference:.3g}")
    if trained.config.data.zoom != 1:
        print(f"The network saw images at {trained.config.data.zoom:g} times their size: resize yours like that first.")

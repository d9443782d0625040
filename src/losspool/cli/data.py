"""The ``losspool data`` commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(
    name: Annotated[str, typer.Argument(help="Dataset: cityscapes, voc, camvid, folder, streets, or an import path.")],
    root: Annotated[Path | None, typer.Argument(help="Data folder (not needed for streets).")] = None,
    split: Annotated[str | None, typer.Option(help="Check only this split (default: all splits).")] = None,
) -> None:
    """Read every file of a dataset, list the faults, and show how often each class occurs."""
    from losspool.segmentation.data import report_check

    if not report_check(name, root, split):
        raise typer.Exit(1)


def prepare_voc(
    voc: Annotated[Path, typer.Argument(help="VOC 2012 folder, or the folder that contains VOCdevkit.")],
    sbd: Annotated[Path, typer.Option(help="SBD folder (benchmark_RELEASE).")],
) -> None:
    """Build VOC's augmented training set: SegmentationClassAug and the list trainaug.txt."""
    from losspool.segmentation.base import plain
    from losspool.segmentation.data import VOC_AUGMENTED_IMAGES, prepare_voc

    done = prepare_voc(voc, sbd)
    print(plain(f"{done.list_file}: {done.images} images, {done.from_sbd} of them with SBD labels"))
    if done.images != VOC_AUGMENTED_IMAGES:
        print(f"The complete set has {VOC_AUGMENTED_IMAGES} images: the VOC or the SBD folder is incomplete.")

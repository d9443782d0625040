"""The commands on datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(
    name: Annotated[str, typer.Argument(help="cityscapes, voc, camvid, folder, streets, or an import path.")],
    root: Annotated[Path | None, typer.Argument(help="Folder of the data; streets needs none.")] = None,
    split: Annotated[str | None, typer.Option(help="Check only this split (default: all splits).")] = None,
) -> None:
    """Read every file of a dataset, list what is wrong, and show what the labels hold."""
    from losspool.segmentation.data import report_check

    if not report_check(name, root, split):
        raise typer.Exit(1)


def prepare_voc(
    voc: Annotated[Path, typer.Argument(help="Folder of VOC 2012, or the one that holds VOCdevkit.")],
    sbd: Annotated[Path, typer.Option(help="Folder of SBD (benchmark_RELEASE).")],
) -> None:
    """Build VOC's augmented training set: SegmentationClassAug and the list trainaug.txt."""
    from losspool.segmentation.base import plain
    from losspool.segmentation.data import VOC_AUGMENTED_IMAGES, prepare_voc

    done = prepare_voc(voc, sbd)
    print(plain(f"{done.list_file}: {done.images} images, {done.from_sbd} of them with labels of SBD"))
    if done.images != VOC_AUGMENTED_IMAGES:
        print(f"The complete set has {VOC_AUGMENTED_IMAGES} images: something is missing in what was given.")

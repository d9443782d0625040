"""What an evaluation counted on each image, as the lab reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.prediction import COUNTS, iou_of_counts, mean_of_present


@dataclass(frozen=True, eq=False)
class ImageCounts:
    """Of one checkpoint."""

    names: tuple[str, ...]
    counts: NDArray[np.int64]
    """(N, 3, C): the hits of each class, its labelled pixels and its predicted ones."""

    @classmethod
    def of(cls, lines: Any, classes: int) -> ImageCounts:
        """From an evaluation's ``per_image``; a ValueError if these are not counts of so many classes."""
        try:
            names = tuple(line["image"] for line in lines)
            counts = np.array([[line[kind] for kind in COUNTS] for line in lines])
        except (TypeError, KeyError) as error:
            raise ValueError(f"no counts of images: {error!r}") from None
        whole = np.issubdtype(counts.dtype, np.integer) and counts.shape == (len(names), len(COUNTS), classes)
        if not whole or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ValueError("no counts of these classes on images of different names")
        hits, labelled, predicted = counts.transpose(1, 0, 2)
        if (hits < 0).any() or (hits > labelled).any() or (hits > predicted).any():
            raise ValueError("more hits than pixels")
        return cls(names, counts)

    def only(self, pattern: str) -> ImageCounts:
        """Of the images whose names match a pattern such as ``Seq05VD*``."""
        places = [place for place, name in enumerate(self.names) if fnmatchcase(name, pattern)]
        return ImageCounts(tuple(self.names[place] for place in places), self.counts[places])

    def summary(self) -> dict[str, Any]:
        """The scores over all these images, as an evaluation has them."""
        summed = self.counts.sum(0)
        ious = iou_of_counts(summed.astype(np.float64))
        return {
            "miou": mean_of_present(ious),
            "iou": [None if np.isnan(iou) else float(iou) for iou in ious],
            "pixels": summed[1].tolist(),
        }

    def labelled_as(self, other: ImageCounts) -> bool:
        """Whether both are of the same images with the same labels."""
        return self.names == other.names and np.array_equal(self.counts[:, 1], other.counts[:, 1])


def same_images(counts: Sequence[ImageCounts]) -> bool:
    return all(each.labelled_as(counts[0]) for each in counts)

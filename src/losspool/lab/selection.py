"""What of the scores counts: the images of one drive, the rare classes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from losspool.lab.image_counts import ImageCounts
from losspool.lab.records import Run, Summary
from losspool.segmentation.base import UserError
from losspool.segmentation.data import ClassInfo
from losspool.segmentation.prediction import mean_of_present


@dataclass(frozen=True)
class Selection:
    """Everything without any of these."""

    images: str | None = None
    """A pattern of names such as ``Seq05VD*``, as a shell has them, with a difference between A and a."""
    classes: tuple[str, ...] | None = None
    """Names. The mean IoU is over these; pixels of other classes still count as wrong where one is predicted."""

    @property
    def everything(self) -> bool:
        return self.images is None and self.classes is None

    def places(self, classes: Sequence[ClassInfo]) -> list[int]:
        """Of the chosen ones among all classes."""
        names = [info.name for info in classes]
        for name in self.classes or ():
            if name not in names:
                raise UserError(f"there is no class {name!r}; there are {', '.join(map(repr, names))}")
        return [place for place, name in enumerate(names) if self.classes is None or name in self.classes]

    def of(self, run: Run, summary: Summary) -> Summary:
        """Of the scores of a checkpoint those that count."""
        if self.images is not None:
            summary = self._of_images(run, summary, self.images)
        return self.of_classes(run, summary)

    def of_classes(self, run: Run, summary: Summary) -> Summary:
        """The same over all images."""
        if self.classes is None:
            return summary
        places = self.places(run.classes)
        found = {**summary, "iou": [summary["iou"][place] for place in places]}
        ious = np.array([np.nan if iou is None else iou for iou in found["iou"]])
        if np.isnan(ious).all():
            raise UserError(f"{run.folder.path}: none of the classes {', '.join(self.classes)} occurs")
        found["miou"] = mean_of_present(ious)
        if "pixels" in summary:
            found["pixels"] = [summary["pixels"][place] for place in places]
        if "per_image" in summary:
            counts = summary["per_image"]
            found["per_image"] = ImageCounts(counts.names, counts.counts[:, :, places])
        return found

    @staticmethod
    def _of_images(run: Run, summary: Summary, pattern: str) -> Summary:
        path, counts = run.folder.path, summary.get("per_image")
        if not isinstance(counts, ImageCounts):
            raise UserError(f"{path}: its scores are not of single images; name an evaluation that counted them")
        found = counts.only(pattern)
        if not found.names:
            raise UserError(f"{path}: no image is called {pattern!r}; a name is such as {counts.names[0]!r}")
        if not found.counts.any():
            raise UserError(f"{path}: no pixel of the images {pattern!r} is labelled")
        return {"step": summary["step"], **found.summary(), "per_image": found}

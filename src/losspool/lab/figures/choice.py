"""Which variant a figure shows where it cannot show all."""

from __future__ import annotations

from losspool.lab.statistics import Statistics
from losspool.lab.variants import Comparison, Variant
from losspool.segmentation.base import UserError


def others(comparison: Comparison) -> tuple[Variant, ...]:
    """All but the baseline, and at least one."""
    if not comparison.others:
        raise UserError(
            f"all runs are of one variant, {comparison.baseline.label}: there is nothing to compare it with"
        )
    return comparison.others


def best(statistics: Statistics, variants: tuple[Variant, ...]) -> Variant:
    """The one with the highest mIoU; of equal ones the first."""
    return max(variants, key=lambda variant: statistics.score(variant).mean)

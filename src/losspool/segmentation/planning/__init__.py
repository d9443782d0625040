"""Propose a recipe for a dataset."""

from losspool.segmentation.planning.plan import PlanOptions, write_plan

__all__ = ["PlanOptions", "write_plan"]

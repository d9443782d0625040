"""Propose a recipe for a dataset."""

from losspool.segmentation.planning.plan import Plan, PlanOptions, make_plan, write_plan
from losspool.segmentation.planning.thickness import thickness

__all__ = ["Plan", "PlanOptions", "make_plan", "thickness", "write_plan"]

"""The grids that come with the package. It can be imported without the lab's requirements, to list them."""

from pathlib import Path

from losspool.segmentation.base import Library

GRIDS = Library("grid", Path(__file__).parent)

__all__ = ["GRIDS"]

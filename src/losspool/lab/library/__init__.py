"""The grids that come with the package. It can be imported without the lab's requirements, to list them."""

from losspool.lab.library.listing import GRIDS, report_recipe, report_recipes

__all__ = ["GRIDS", "report_recipe", "report_recipes"]

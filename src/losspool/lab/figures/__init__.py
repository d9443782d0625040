"""The paper's figures 1 to 4, drawn from this package's own results, and the style they share."""

from losspool.lab.figures.optimal_weights import synthetic_losses
from losspool.lab.figures.style import COLORMAP, save_figure, styled
from losspool.lab.figures.table import write_figures

__all__ = ["COLORMAP", "save_figure", "styled", "synthetic_losses", "write_figures"]

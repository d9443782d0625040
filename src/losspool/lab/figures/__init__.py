"""The paper's figures 1 to 4, drawn from this package's own results."""

from losspool.lab.figures.draw import write_figures

__all__ = ["write_figures"]

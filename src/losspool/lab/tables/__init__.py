"""Tables like the paper's: from runs, or from the paper's own numbers."""

from losspool.lab.tables.formats import show_tables, write_tables
from losspool.lab.tables.from_runs import run_tables
from losspool.lab.tables.paper import paper_tables
from losspool.lab.tables.questions import answer, rare_classes, rare_table

__all__ = [
    "answer",
    "paper_tables",
    "rare_classes",
    "rare_table",
    "run_tables",
    "show_tables",
    "write_tables",
]

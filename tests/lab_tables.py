"""Tables as a test reads them."""

import csv
import io

from lab_runs import statistics_of
from losspool.lab.tables import run_tables
from losspool.lab.tables.formats import format_table


def tables(root, *kinds, **options):
    return {table.name: table for table in run_tables(statistics_of(root, **options), kinds)}


def rows(table):
    """Label -> column -> number, from the CSV."""
    header, *body = csv.reader(io.StringIO(format_table(table, "csv")))
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in body}

"""Tables as a test reads them."""

import csv
import io

from losspool.lab.records import find_runs
from losspool.lab.tables.formats import comma_separated
from losspool.lab.tables.from_runs import run_tables
from losspool.lab.variants import compare


def tables(root, *kinds, **options):
    return {table.name: table for table in run_tables(compare(find_runs([root]), **options), list(kinds) or None)}


def rows(table):
    """Label -> column -> number, from the CSV."""
    header, *body = csv.reader(io.StringIO(comma_separated(table)))
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in body}

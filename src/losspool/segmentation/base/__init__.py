"""Shared helpers: errors, console, files, threads and processes. Imports nothing from the other subpackages."""

from losspool.segmentation.base.console import console, counted, percent, plain, progress_bar, say, track
from losspool.segmentation.base.errors import (
    BrokenFileError,
    NotImportableError,
    UserError,
    did_you_mean,
    first_line,
    out_of_memory,
)
from losspool.segmentation.base.files import PARTIAL, read_json, remove, replacing, sweep, write_json, writing
from losspool.segmentation.base.library import Library, is_path
from losspool.segmentation.base.number_tables import number_tables
from losspool.segmentation.base.plugins import check_trusted, import_by_path, is_import_path
from losspool.segmentation.base.process import Interrupt, Interrupted, end_with_parent, hard_exit, leave_behind
from losspool.segmentation.base.sections import (
    EXPONENT,
    NUMBER,
    Args,
    Count,
    Fraction,
    NameIn,
    Natural,
    NonNegative,
    Positive,
    parse_number,
    section,
    validate,
)
from losspool.segmentation.base.threads import in_threads
from losspool.segmentation.base.yaml_file import is_utf8, parse_yaml, read_yaml, yaml_line, yaml_text

__all__ = [
    "EXPONENT",
    "NUMBER",
    "PARTIAL",
    "Args",
    "BrokenFileError",
    "Count",
    "Fraction",
    "Interrupt",
    "Interrupted",
    "Library",
    "NameIn",
    "Natural",
    "NonNegative",
    "NotImportableError",
    "Positive",
    "UserError",
    "check_trusted",
    "console",
    "counted",
    "did_you_mean",
    "end_with_parent",
    "first_line",
    "hard_exit",
    "import_by_path",
    "in_threads",
    "is_import_path",
    "is_path",
    "is_utf8",
    "leave_behind",
    "number_tables",
    "out_of_memory",
    "parse_number",
    "parse_yaml",
    "percent",
    "plain",
    "progress_bar",
    "read_json",
    "read_yaml",
    "remove",
    "replacing",
    "say",
    "section",
    "sweep",
    "track",
    "validate",
    "write_json",
    "writing",
    "yaml_line",
    "yaml_text",
]

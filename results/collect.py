"""Copy the small text files of finished runs to a folder for publication; refuse runs that name local paths."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from losspool.lab.comparison import read_run, run_folders
from losspool.segmentation.base import UserError, replacing
from losspool.segmentation.runs import read_metrics

# The config at the end: a folder that has it is taken for a run, and then the rest must be there.
FILES = ("run.json", "metrics.jsonl", "evaluation-*.json", "calibration.json", "config.yaml")


def collect(paths: Sequence[Path], out: Path, failed: bool = False) -> list[Path]:
    """Copy runs and return the copies. All runs are checked before any file is written; current files are left alone.

    With ``failed`` runs that failed are taken, too: a learning rate at which the loss goes to infinity is a result.
    """
    runs: dict[str, tuple[Path, dict[str, bytes]]] = {}
    for folder in dict.fromkeys(found.resolve() for path in paths for found in run_folders(path)):
        if folder.name in runs:
            raise UserError(f"{folder} and {runs[folder.name][0]} are runs of the same name")
        runs[folder.name] = folder, publishable(folder, failed)
    for name, (_, files) in runs.items():
        _write(out / name, files)
    return [out / name for name in runs]


def publishable(folder: Path, failed: bool = False) -> dict[str, bytes]:
    """The files of a run that are published, by name. An unfinished run is an error."""
    run = read_run(folder)
    status = run.description.get("status")
    if status != "finished" and not (failed and run.failed):
        hint = "; --failed takes it all the same" if run.failed else ""
        raise UserError(f"{folder}: the run is not finished (its status is {status!r}{hint})")
    if not run.validations and not run.failed:
        raise UserError(f"{folder}: the run has no validation")
    files = {path.name: path.read_bytes() for pattern in FILES for path in sorted(folder.glob(pattern))}
    for name, content in files.items():
        for text in _strings(_parsed(folder / name, content)):
            if text.startswith(("/", "~")):
                raise UserError(f"{folder / name}: holds a path of this machine, {text!r}")
    return files


def _parsed(path: Path, content: bytes) -> Any:
    try:
        if path.suffix == ".jsonl":
            return read_metrics(path)
        return yaml.safe_load(content) if path.suffix == ".yaml" else json.loads(content)
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def _strings(value: Any) -> Iterator[str]:
    """All strings in a nested value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            with replacing(path) as partial:
                partial.write_bytes(content)
    for path in (path for pattern in FILES for path in folder.glob(pattern)):
        if path.name not in files:  # such as an evaluation of another step: the tables would find two
            path.unlink()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="FOLDER", help="a run, or a folder that holds some")
    parser.add_argument("--out", required=True, type=Path, help="output folder, such as results/camvid/methods")
    parser.add_argument("--failed", action="store_true", help="also copy failed runs (default: refuse them)")
    options = parser.parse_args(arguments)
    try:
        for path in collect(options.runs, options.out, options.failed):
            print(path)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

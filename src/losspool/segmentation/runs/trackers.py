"""Experiment trackers beside metrics.jsonl: TensorBoard, Weights & Biases and MLflow, through their own libraries.

A library is imported only where ``train.trackers`` names it. Its own settings (``WANDB_MODE``, ``WANDB_PROJECT``,
``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``) say where the numbers go.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
from PIL import Image

from losspool.segmentation.base import Interrupted, UserError, first_line, read_json, replacing, say, write_json
from losspool.segmentation.config import Config, flat
from losspool.segmentation.runs.folder import RunFolder

PROJECT = "losspool"
"""W&B's project and MLflow's experiment, unless an environment variable names another."""


class Tracker(Protocol):
    """Takes the numbers and images of one run."""

    run_id: str | None
    """With this id a resumed run goes on in the tracker; None if it needs none."""

    def numbers(self, step: int, values: Mapping[str, float]) -> None: ...
    def image(self, step: int, name: str, image: Image.Image) -> None: ...
    def close(self, status: str) -> None:
        """``status``: finished, stopped or failed, as in run.json."""


class TensorBoard:
    """Writes event files to the folder ``tensorboard`` of the run."""

    run_id: str | None = None

    def __init__(self, library: Any, folder: RunFolder, config: Config, run_id: str | None) -> None:
        self._writer = library.SummaryWriter(str(folder.path / "tensorboard"))

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def image(self, step: int, name: str, image: Image.Image) -> None:
        self._writer.add_image(name, np.asarray(image), step, dataformats="HWC")

    def close(self, status: str) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Logs to a run of Weights & Biases. Its local files are in the folder ``wandb`` of the run."""

    def __init__(self, library: Any, folder: RunFolder, config: Config, run_id: str | None) -> None:
        self._library = library
        self._run = library.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.path.name,
            dir=str(folder.path),
            config=flat(config),
            id=run_id,
            resume=None if run_id is None else "allow",
            allow_val_change=True,  # a resumed run may have more steps
        )
        self.run_id: str | None = self._run.id

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def image(self, step: int, name: str, image: Image.Image) -> None:
        self._run.log({name: self._library.Image(image)}, step=step)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "finished" else 1)


class MLflow:
    """Logs to a run of MLflow, on the store that MLflow is set to."""

    def __init__(self, library: Any, folder: RunFolder, config: Config, run_id: str | None) -> None:
        self._entities, self._client = import_module("mlflow.entities"), library.MlflowClient()
        if run_id is not None:
            self._client.update_run(run_id, status="RUNNING")
            self.run_id: str | None = run_id
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        self.run_id = self._client.create_run(experiment, run_name=folder.path.name).info.run_id
        params = [self._entities.Param(key, str(value)) for key, value in flat(config).items()]
        for start in range(0, len(params), 100):  # the most that a call may have
            self._client.log_batch(self.run_id, params=params[start : start + 100])

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [self._entities.Metric(self._name(name), value, now, step) for name, value in values.items()]
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + 1000])

    def image(self, step: int, name: str, image: Image.Image) -> None:
        self._client.log_image(self.run_id, image, key=self._name(name), step=step)

    def close(self, status: str) -> None:
        ended = {"finished": "FINISHED", "stopped": "KILLED"}
        self._client.set_terminated(self.run_id, ended.get(status, "FAILED"))

    @staticmethod
    def _name(name: str) -> str:
        """MLflow refuses names with other characters, which a class may have."""
        return re.sub(r"[^\w./ -]", "_", name)


class _Kind(NamedTuple):
    module: str
    install: str
    """What ``pip install`` calls it."""
    open: Callable[[Any, RunFolder, Config, str | None], Tracker]


TRACKERS = {
    "tensorboard": _Kind("torch.utils.tensorboard", "tensorboard", TensorBoard),
    "wandb": _Kind("wandb", "wandb", WeightsAndBiases),
    "mlflow": _Kind("mlflow", "mlflow", MLflow),
}
"""The trackers by name."""


def check_trackers(names: Sequence[str]) -> None:
    """Raise ``UserError`` if the library of a tracker is missing."""
    for name in names:
        _library(name)


def _library(name: str) -> Any:
    kind = TRACKERS[name]
    try:
        return import_module(kind.module)
    except ImportError:
        raise UserError(f"train.trackers: {name} needs its library: pip install {kind.install}") from None


class Trackers:
    """All trackers of a run, as a context that closes them. One that fails is reported and left out from there on:
    metrics.jsonl has the numbers, and a server that is down must not end a run."""

    def __init__(self, folder: RunFolder, config: Config, classes: Sequence[str], names: Sequence[str]) -> None:
        self._classes, self._ids_file = classes, folder.path / "trackers.json"
        ids = read_json(self._ids_file) if names and self._ids_file.exists() else {}
        self._open: dict[str, Tracker] = {}
        for name in names:
            try:
                self._open[name] = TRACKERS[name].open(_library(name), folder, config, ids.get(name))
            except UserError:
                raise
            except Exception as error:  # another package's code may raise anything
                raise UserError(f"train.trackers: {name} does not start ({first_line(error)})") from error
        self._keep(ids)

    def _keep(self, ids: dict[str, Any]) -> None:
        """Write the ids of the runs, for when this one is resumed."""
        found = ids | {name: each.run_id for name, each in self._open.items() if each.run_id is not None}
        if found != ids:
            with replacing(self._ids_file) as partial:
                write_json(partial, json.dumps(found))

    def write(self, entry: Mapping[str, Any]) -> None:
        """Log a line of metrics."""
        values = named_numbers(entry, self._classes)
        self._each("numbers", entry["step"], values)

    def images(self, step: int, files: Mapping[str, Path]) -> None:
        """Log images by name."""
        for name, file in files.items() if self._open else ():
            with Image.open(file) as image:
                picture = image.convert("RGB")  # of a palette
            self._each("image", step, name, picture)

    def _each(self, method: str, *args: Any) -> None:
        for name, tracker in list(self._open.items()):
            try:
                getattr(tracker, method)(*args)
            except Exception as error:
                del self._open[name]
                say(f"train.trackers: {name} failed ({first_line(error)}); the run goes on without it")

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        status = "finished" if kind is None else "stopped" if isinstance(error, Interrupted) else "failed"
        self._each("close", status)


def named_numbers(entry: Mapping[str, Any], classes: Sequence[str]) -> dict[str, float]:
    """The numbers of a line of metrics as ``split/name``; of a list with a number per class, ``split/name/class``.

    >>> named_numbers({"step": 5, "split": "val", "miou": 0.5, "iou": [0.5, None]}, ["sky", "pole"])
    {'val/miou': 0.5, 'val/iou/sky': 0.5}
    """
    found: dict[str, Any] = {}
    for key, value in entry.items():
        name = f"{entry['split']}/{key}"
        if isinstance(value, list) and len(value) == len(classes):
            named = (each.replace("/", "_") for each in classes)
            found |= {f"{name}/{each}": number for each, number in zip(named, value, strict=True)}
        elif key != "step":
            found[name] = value
    return {name: value for name, value in found.items() if isinstance(value, int | float)}

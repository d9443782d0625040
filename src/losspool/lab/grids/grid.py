"""A grid: overrides of a recipe, one run for each combination."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from losspool.lab.comparison import labels, matching_names
from losspool.lab.library import GRIDS
from losspool.segmentation.base import UserError, is_import_path, is_path, read_json, read_yaml
from losspool.segmentation.config import RECIPES, Config, EvaluateConfig, load_config
from losspool.segmentation.prediction import evaluation_name, with_overrides
from losspool.segmentation.runs import RunFolder, check_folder

_KEYS = ("recipe", "overrides", "runs", "seeds", "evaluate", "scores", "baseline", "class_baseline")
_EVALUATE_KEYS = ("split", "checkpoint", "tiling", "scales", "flip")


@dataclass(frozen=True)
class PlannedEvaluation:
    """An evaluation that a grid makes of each run."""

    split: str
    checkpoint: str
    settings: EvaluateConfig

    def path(self, job: Job) -> Path | None:
        """The file that ``losspool evaluate`` writes; None while it depends on a training that has not ended."""
        steps = self._steps(job)
        return job.folder.path / f"{evaluation_name(self.split, self.settings, steps)}.json" if steps else None

    def stem(self, job: Job) -> str:
        """The file's name without ``evaluation-``, as far as it is known: ``scores`` matches its beginning."""
        return evaluation_name(self.split, self.settings, self._steps(job)).removeprefix("evaluation-")

    @property
    def listed(self) -> list[int]:
        """The steps of the checkpoints, unless named ``last`` or ``best``."""
        steps = () if self.checkpoint in ("best", "last") else map(int, self.checkpoint.split(","))
        return list(dict.fromkeys(steps))

    def _steps(self, job: Job) -> list[int]:
        if self.checkpoint == "best":
            best = _description(job.folder).get("best") or {}
            return [best["step"]] if "step" in best else []
        return self.listed or [job.config.train.steps]

    def arguments(self, job: Job) -> tuple[str, ...]:
        """The arguments of the ``losspool`` command."""
        scales = ",".join(map(str, self.settings.scales))
        words = ["evaluate", str(job.folder.path), "--split", self.split, "--checkpoint", self.checkpoint]
        words += ["--tiling", self.settings.tiling, "--scales", scales, "--flip" if self.settings.flip else "--no-flip"]
        # The grid or its recipe names this code, so the user already trusts it.
        for name in filter(is_import_path, (job.config.model.name, job.config.data.name)):
            words += ["--trust", name]
        return tuple(words)


@dataclass(frozen=True)
class Job:
    """One run of a grid: ``losspool`` commands, one after the other."""

    name: str
    folder: RunFolder
    config: Config
    train: tuple[str, ...]
    """The arguments of the ``losspool`` command."""
    evaluations: tuple[PlannedEvaluation, ...]

    @property
    def trained(self) -> bool:
        description = _description(self.folder)
        return description.get("status") == "finished" and description.get("step") == self.config.train.steps

    @property
    def missing(self) -> list[tuple[str, ...]]:
        """The arguments of the commands that have not finished yet."""
        paths = ((each, each.path(self)) for each in self.evaluations)
        evaluations = [each.arguments(self) for each, path in paths if path is None or not path.exists()]
        return [*([] if self.trained else [self.train]), *evaluations]


@dataclass(frozen=True)
class Grid:
    """The content of a grid's file."""

    path: Path
    recipe: str
    """A recipe's name, or its path."""
    overrides: Mapping[str, Any]
    blocks: tuple[Mapping[str, Any], ...]
    """Settings with a value or a list of values each; every combination is a run."""
    seeds: tuple[tuple[int, ...], ...]
    """By block."""
    evaluations: tuple[Mapping[str, Any], ...]
    scores: str | None
    """Which scores the tables show, see :meth:`losspool.lab.comparison.Run.scores`."""
    baseline: str | None
    class_baseline: str | None
    """What the tables by class and the figures compare with (default: the baseline)."""

    @property
    def name(self) -> str:
        return self.path.stem

    def jobs(self, out: Path, overrides: Sequence[str] = ()) -> list[Job]:
        """Every run, with its folder below ``out``. ``overrides`` apply to all runs and take precedence."""
        varied = {"seed", *(key for block in self.blocks for key in block)}
        for text in overrides:
            if text.partition("=")[0] in varied:
                raise UserError(f"{text}: the grid itself sets {text.partition('=')[0]}; change it in {self.path}")
        jobs = [self._job(out, dict(settings), overrides) for settings in self._combinations()]
        names = [job.name for job in jobs]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{self.path}: {names.count(name)} runs are called {name!r}")
        known = labels([job.config for job in jobs])
        runs: dict[tuple[str, int], Job] = {}
        for job, label in zip(jobs, known, strict=True):
            same = runs.setdefault((label, job.config.seed), job)
            if same is not job:
                raise UserError(f"{self.path}: the runs {same.name!r} and {job.name!r} are the same")
            check_folder(job.folder, job.config, resume=True)
            self._check_steps(job)
        self._check_names(jobs, known)
        return jobs

    def _check_steps(self, job: Job) -> None:
        """Fail before training if a checkpoint to be evaluated could be deleted by then."""
        train = job.config.train
        for each in job.evaluations if not job.trained else ():
            for step in each.listed:
                # Other checkpoints may be deleted as newer and better ones are written.
                if step > train.steps or step not in (*train.keep_steps, train.steps):
                    raise UserError(
                        f"{self.path}: evaluate: {job.name} will have no checkpoint of step {step}; "
                        "train.keep_steps names those that are kept"
                    )

    def _check_names(self, jobs: Sequence[Job], known: Sequence[str]) -> None:
        """Fail before training if the baseline or the scores would not exist."""
        for baseline in (self.baseline, self.class_baseline):
            if baseline is not None and baseline not in known:
                there = ", ".join(map(repr, dict.fromkeys(known)))
                raise UserError(f"{self.path}: unknown baseline {baseline!r}; choose from {there}")
        if self.scores is None:
            return
        for job in jobs:
            stems = [each.stem(job) for each in job.evaluations]
            if len(matching_names(self.scores, stems)) != 1:
                raise UserError(f"{self.path}: scores {self.scores!r} must begin one of the evaluations {stems}")

    def _combinations(self) -> Iterator[dict[str, Any]]:
        for block, seeds in zip(self.blocks, self.seeds, strict=True):
            values = [value if isinstance(value, list) else [value] for value in block.values()]
            for chosen in itertools.product(*values):
                for seed in seeds:
                    yield {**dict(zip(block, chosen, strict=True)), "seed": seed}

    def _job(self, out: Path, settings: dict[str, Any], overrides: Sequence[str]) -> Job:
        name, folder = _name(settings), RunFolder(out / _name(settings))
        words = [*(_word(key, value) for key, value in {**self.overrides, **settings}.items()), *overrides]
        config = load_config(self.recipe, words)
        train = ("train", self.recipe, *words, "--out", str(folder.path), "--resume")
        evaluations = tuple(_planned_evaluation(self.path, config, wanted) for wanted in self.evaluations)
        return Job(name, folder, config, train, evaluations)


def read_grid(path: Path | str) -> Grid:
    """Read a grid from YAML, see docs/lab.md. ``path`` may be the name of a grid that comes with the package."""
    path = GRIDS.find(path)
    content = read_yaml(path, "the grid")
    if not isinstance(content, dict):
        raise UserError(f"{path}: a grid holds settings by name, got {type(content).__name__}")
    for key in content:
        if key not in _KEYS:
            raise UserError(f"{path}: unknown key {key!r}; choose from {', '.join(_KEYS)}")
    recipe = content.get("recipe")
    if not isinstance(recipe, str):
        raise UserError(f"{path}: 'recipe' must be a recipe's name or path, got {recipe!r}")
    blocks = content.get("runs")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) and block for block in blocks):
        raise UserError(f"{path}: 'runs' must be a list of settings by name, got {blocks!r}")
    for_all = _seeds(path, content.get("seeds", [0]))
    seeds = tuple(_seeds(path, block["seeds"]) if "seeds" in block else for_all for block in blocks)
    settings = tuple({key: value for key, value in block.items() if key != "seeds"} for block in blocks)
    for block in settings:
        _check_settings(path, "runs", block, lists=True)
        if "seed" in block:
            raise UserError(f"{path}: runs: seeds are named in 'seeds'")
        if not block:
            raise UserError(f"{path}: runs: a block of seeds alone has no run")
    return Grid(
        path,
        _recipe(path, recipe),
        _check_settings(path, "overrides", _mapping(path, "overrides", content.get("overrides") or {})),
        settings,
        seeds,
        tuple(_evaluations(path, content.get("evaluate") or [])),
        _text(path, "scores", content.get("scores")),
        _text(path, "baseline", content.get("baseline")),
        _text(path, "class_baseline", content.get("class_baseline")),
    )


def _recipe(path: Path, name: str) -> str:
    """A recipe's name as it is, which every machine of a cluster knows; a path from the grid's folder."""
    beside = os.path.normpath(path.parent / name)
    if is_path(name) or os.path.isfile(beside):
        return beside
    try:
        RECIPES.find(name)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return name


def _seeds(path: Path, seeds: Any) -> tuple[int, ...]:
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise UserError(f"{path}: 'seeds' must be a list of whole numbers, got {seeds!r}")
    return tuple(seeds)


def _check_settings(path: Path, where: str, settings: Mapping[str, Any], lists: bool = False) -> Mapping[str, Any]:
    """Require names of settings, and values that fit a command line; with ``lists`` a list is several values."""
    for key, value in settings.items():
        values = value if lists and isinstance(value, list) else [value]
        flat = [one for each in values for one in _leaves(key, each)]
        if not isinstance(key, str) or not values:
            raise UserError(f"{path}: {where}: {key!r} must be a setting's name with a value, got {value!r}")
        for one in flat:
            if one is not None and not isinstance(one, str | int | float):
                raise UserError(f"{path}: {where}: {key} cannot be {one!r}")
    return settings


def _leaves(key: Any, value: Any) -> list[Any]:
    """The values of a list, or of a setting that is a mapping; any other value is one."""
    if isinstance(value, dict) and "." in str(key):  # without a dot it would be a whole section
        return list(value.values())
    return value if isinstance(value, list) else [value]


def _evaluations(path: Path, wanted: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(wanted, list):
        raise UserError(f"{path}: 'evaluate' must be a list, got {wanted!r}")
    for each in wanted:
        for key in _mapping(path, "evaluate", each):
            if key not in _EVALUATE_KEYS:
                raise UserError(f"{path}: evaluate: unknown key {key!r}; choose from {', '.join(_EVALUATE_KEYS)}")
        yield each


def _planned_evaluation(path: Path, config: Config, wanted: Mapping[str, Any]) -> PlannedEvaluation:
    checkpoint, scales = wanted.get("checkpoint", "last"), wanted.get("scales")
    listed = ",".join(map(str, checkpoint if isinstance(checkpoint, list) else [checkpoint]))
    if listed not in ("last", "best") and not re.fullmatch(r"\d+(,\d+)*", listed):
        raise UserError(f"{path}: evaluate: checkpoint must be last, best or a list of steps, got {checkpoint!r}")
    if scales is not None and not isinstance(scales, list):
        raise UserError(f"{path}: evaluate: scales must be a list of numbers, got {scales!r}")
    flip, tiling, split = wanted.get("flip"), wanted.get("tiling"), wanted.get("split", config.data.val)
    if flip is not None and not isinstance(flip, bool):
        raise UserError(f"{path}: evaluate: flip must be true or false, got {flip!r}")
    if split is None:
        raise UserError(f"{path}: evaluate: name a split, because data.val is null")
    for key, value in (("tiling", tiling), ("split", split)):
        if value is not None and not isinstance(value, str):
            raise UserError(f"{path}: evaluate: {key} must be text, got {value!r}")
    shown = None if scales is None else ",".join(map(str, scales))
    settings = with_overrides(config.evaluate, tiling=tiling, scales=shown, flip=flip)
    return PlannedEvaluation(split, listed, settings)


def _mapping(path: Path, key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{path}: {key!r} must hold settings by name, got {value!r}")
    return value


def _description(folder: RunFolder) -> dict[str, Any]:
    """run.json; empty if the run has not begun or the file is damaged, so that it is run or resumed."""
    try:
        return read_json(folder.description)
    except UserError:
        return {}


def _text(path: Path, key: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UserError(f"{path}: {key!r} must be text, got {value!r}")
    return value


def _name(settings: Mapping[str, Any]) -> str:
    """``lmp-p1.3-m25-s0``: the method, all other settings of the block, the seed."""
    parts = [str(settings.get("method", "run"))]
    parts += [
        key.rsplit(".", maxsplit=1)[-1] + _value(value)
        for key, value in settings.items()
        if key not in ("method", "seed")
    ]
    return "-".join(re.sub(r"[^A-Za-z0-9._+]", "", part) for part in (*parts, f"s{settings['seed']}"))


def _word(key: str, value: Any) -> str:
    """``key=value`` for the command line."""
    return f"{key}={_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and math.isinf(value):
        return ".inf"
    return json.dumps(value)

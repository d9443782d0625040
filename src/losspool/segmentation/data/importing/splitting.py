"""Divide the images of a source into train, val and test: by lists, by share, with groups kept together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from losspool.segmentation.base import UserError, counted
from losspool.segmentation.data.files.file_dataset import read_list
from losspool.segmentation.data.files.groups import Groups
from losspool.segmentation.data.files.images import SUFFIXES
from losspool.segmentation.data.importing.layouts import split_of

DEFAULT_SHARE = 0.2


@dataclass(frozen=True)
class Splitting:
    """How to divide images that come without splits."""

    val: float | None = None
    """Share of the images for validation (default: 20 %, unless the source has a split for it)."""
    test: float = 0.0
    """Share of the images for testing."""
    lists: tuple[Path, ...] = ()
    """List files, each called after its split."""
    group: str | None = None
    """A regular expression on names: images with the same match (its first group, if it has one) stay together."""

    @property
    def pattern(self) -> re.Pattern[str] | None:
        if self.group is None:
            return None
        try:
            return re.compile(self.group)
        except (re.error, OverflowError, RecursionError) as error:
            raise UserError(f"--group must be a regular expression, got {self.group!r} ({error})") from None


def divide(
    names: Mapping[str, str | None],
    how: Splitting,
    source: Path,
    groups: Groups | None = None,
    unlabelled: Collection[str] = (),
) -> dict[str, str]:
    """The split of each image, given the split that the source has for it. The order of the names does not matter.

    Images of one of the ``groups`` stay together, unless ``how`` says what does. Images that are ``unlabelled`` are in
    no split, unless a list for testing names them.
    """
    every = {**names, **dict.fromkeys(unlabelled)}
    lists = how.lists or (() if any(names.values()) else _found_lists(every, source))
    own = _by_lists(every, lists, unlabelled) if lists else names
    known = {name: split for name, split in own.items() if split}
    for name, split, wanted in (("val", "validation", how.val), ("test", "test", how.test)):
        if wanted and name in known.values():
            raise UserError(f"{source}: the source or a list has a {split} split already; leave --{name} out")
    share = DEFAULT_SHARE if how.val is None else how.val
    shares = {"val": 0.0 if "val" in known.values() else share, "test": how.test}
    for name, value in shares.items():
        if not 0 <= value < 1:
            raise UserError(f"--{name} must be a share of the images from 0 to less than 1, got {value:g}")
    if sum(shares.values()) >= 1:
        both = " and ".join(f"{value:g}" for value in shares.values())
        raise UserError(f"--val and --test must leave images for training, got {both}")
    free = [name for name, split in own.items() if split in (None, "train")]
    if not free:
        return known
    return known | _by_share(free, shares, _group_names(free, names, how, groups or Groups()))


def _by_share(names: Sequence[str], shares: Mapping[str, float], group_names: Sequence[str]) -> dict[str, str]:
    """Whole groups in an order by hash, so that it depends on nothing else, until a split has its share."""
    groups: dict[str, list[str]] = {}
    for name, group in zip(names, group_names, strict=True):
        groups.setdefault(group, []).append(name)
    wanted = {split: share * len(names) for split, share in shares.items() if share}
    if len(groups) <= len(wanted) and wanted:
        raise UserError(
            f"{counted(len(names), 'image')} in {counted(len(groups), 'group')} cannot be divided into "
            f"{len(wanted) + 1} splits; pass --val 0, or another --group"
        )
    left = sorted(groups, key=lambda each: hashlib.sha256(each.encode(errors="surrogateescape")).digest())
    found: dict[str, str] = {}
    for place, (split, count) in enumerate(wanted.items()):
        others = len(wanted) - place  # each further split, train among them, needs a group
        taken = 0
        while len(left) > others and (taken == 0 or taken + len(groups[left[0]]) / 2 <= count):
            members = groups[left.pop(0)]
            taken += len(members)
            found |= dict.fromkeys(members, split)
    return found | {name: "train" for each in left for name in groups[each]}


def _group_names(
    names: Sequence[str], splits: Mapping[str, str | None], how: Splitting, groups: Groups
) -> Sequence[str]:
    """The group of each image, by its name without the split."""
    own = [name.removeprefix(f"{splits[name]}/") for name in names]
    if (pattern := how.pattern) is None:
        return groups.of(own) or names
    for name in own:
        if pattern.search(name) is None:
            raise UserError(f"--group {how.group!r} does not match the image {name!r}")
    return Groups(pattern).of(own) or names


def _found_lists(names: Mapping[str, str | None], source: Path) -> tuple[Path, ...]:
    """Text files called after a split, of which the first line names an image."""
    known = _by_any_name(names)
    folders = (source, source / "splits", source / "lists", *source.rglob("ImageSets/Segmentation"))
    paths = [
        path for folder in folders for path in sorted(folder.glob("*.txt")) if path.stem in ("train", "val", "test")
    ]
    return tuple(path for path in paths if any(_named(known, entry) for entry in read_list(path)[:1]))


def _by_lists(names: Mapping[str, str | None], lists: Sequence[Path], unlabelled: Collection[str]) -> dict[str, str]:
    """The images that are listed. If no list says what is for training, the others keep the source's split.

    Without one they are for training. Others are left out, also those of a split that a list replaces.
    """
    known: dict[str, str] = _by_any_name(names)
    found: dict[str, str] = {}
    for path in lists:
        split = split_of(path.stem) or path.stem
        for entry in read_list(path):
            name = _named(known, entry)
            if name is None or (name in unlabelled and split != "test"):
                raise UserError(f"{path}: there is no labelled image {entry!r}")
            if found.setdefault(name, split) != split:
                raise UserError(f"{path}: {entry!r} is also in the list of {found[name]!r}")
    listed = set(found.values())
    if "train" not in listed:
        others = {name: split or "train" for name, split in names.items() if name not in found}
        found |= {name: split for name, split in others.items() if split not in listed and name not in unlabelled}
    return found


def _named(known: Mapping[str, str], entry: str) -> str | None:
    """The image that a line of a list names, by its whole path or the last part of it."""
    return known.get(_key(entry)) or known.get(PurePosixPath(_key(entry)).name)


def _key(entry: str) -> str:
    path = PurePosixPath(entry.split()[0] if entry.split() else entry)  # some lists name the label too
    return path.with_suffix("").as_posix() if path.suffix.lower() in SUFFIXES else path.as_posix()


def _by_any_name(names: Mapping[str, str | None]) -> dict[str, str]:
    """Names by themselves, and by their last part where that is enough."""
    last: dict[str, list[str]] = {}
    for name in names:
        last.setdefault(PurePosixPath(name).name, []).append(name)
    return {short: some[0] for short, some in last.items() if len(some) == 1} | {name: name for name in names}

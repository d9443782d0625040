"""Groups of images that belong together: of a patient, a drive, a field. Images of different groups are independent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from reprlib import repr as short  # file contents may be arbitrarily long
from typing import Any, Protocol, runtime_checkable

from losspool.segmentation.base import UserError
from losspool.segmentation.data.protocol import Dataset

VIDEO = "video"


@dataclass(frozen=True)
class Groups:
    """How the images of a dataset are grouped; by default each is independent."""

    pattern: re.Pattern[str] | None = None
    """The group of a name is what the pattern's first parentheses match, or all of the match."""
    listed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of groups, each with the names of its images; ``*`` and ``?`` are a shell's."""
    video: bool = False
    """Whether the images are frames, numbered at the end of their names."""

    @property
    def value(self) -> str | dict[str, list[str]] | None:
        """What stands under ``groups`` in a dataset's file; None for the default."""
        if self.video:
            return VIDEO
        if self.pattern is not None:
            return self.pattern.pattern
        return {group: list(members) for group, members in self.listed} or None

    def of(self, names: Sequence[str]) -> list[str] | None:
        """The group of each image; one without a group is its own. None if nothing is grouped."""
        if self.pattern is None and not self.listed:
            return None
        return [self._of(name) for name in names]

    def divided(self, splits: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """The groups that have images in more than one split, with these splits.

        An image that is a group of its own is not counted: another one of this name may be in another split.
        """
        found: dict[str, list[str]] = {}
        for split, names in splits.items():
            groups = self.of(names) or ()
            for group in dict.fromkeys(group for group, name in zip(groups, names, strict=False) if group != name):
                found.setdefault(group, []).append(split)
        return {group: some for group, some in found.items() if len(some) > 1}

    def _of(self, name: str) -> str:
        if self.pattern is not None:
            found = self.pattern.search(name)
            return (found[1] if self.pattern.groups else found[0]) or name if found else name
        for group, members in self.listed:
            if any(fnmatchcase(name, member) for member in members):
                return group
        return name


@runtime_checkable
class HasGroups(Protocol):
    """Optional extension of a dataset, for one whose images belong together. Evaluations store the groups."""

    @property
    def groups(self) -> Groups:
        """Which images belong together."""


def divided_groups(divided: Mapping[str, Sequence[str]]) -> str:
    """A warning of groups that have images in several splits."""
    some = ", ".join(f"{group} in {' and '.join(splits)}" for group, splits in [*divided.items()][:3])
    are = "group has images" if len(divided) == 1 else "groups have images"
    return f"{len(divided)} {are} in more than one split, so scores are too good ({some}); keep each group in one split"


def groups_of(dataset: Dataset) -> Groups:
    """The dataset's groups; without any, each image is independent."""
    found: object = dataset.groups if isinstance(dataset, HasGroups) else Groups()
    if not isinstance(found, Groups):
        raise UserError(
            f"{dataset.name}: its groups must be losspool.segmentation.data.Groups, got {type(found).__name__}"
        )
    return found


def parse_groups(path: Path, value: Any) -> Groups:
    """The ``groups`` of a dataset's file: ``video``, a regular expression, or lists of image names by group."""
    if value is None:
        return Groups()
    if value == VIDEO:
        return Groups(video=True)
    if isinstance(value, str):
        try:
            return Groups(re.compile(value))
        except (re.error, OverflowError, RecursionError) as error:
            raise UserError(f"{path}: 'groups' is not a regular expression ({error}), got {short(value)}") from None
    if not isinstance(value, dict) or not value:
        raise UserError(
            f"{path}: 'groups' must be video, a regular expression such as '(\\w+)_\\d+', or lists of image names by "
            f"group, got {short(value)}"
        )
    for group, members in value.items():
        named = isinstance(members, list) and all(isinstance(member, str) for member in members)
        if not isinstance(group, str) or not named:
            raise UserError(f"{path}: groups[{group!r}] must be a list of image names, got {short(members)}")
    return Groups(listed=tuple((group, tuple(members)) for group, members in value.items()))

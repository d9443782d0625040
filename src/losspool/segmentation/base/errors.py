"""What a user can mend. Anything else that leaves this package is a bug."""

from __future__ import annotations

from pathlib import Path


class UserError(Exception):
    """A mistake outside the code: one sentence that names the value, the file or the field."""


def out_of_memory(error: BaseException) -> bool:
    """Whether the machine lacked memory: torch says that in words of a RuntimeError."""
    told = "allocate memory" in str(error) or "out of memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and told)


class BrokenFileError(UserError):
    """A file of a dataset that is missing, damaged or does not fit its partner, and will be tomorrow.

    A run may go without it, so the machine's own troubles (memory, open files, the disk) are no such error.
    """

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[BrokenFileError], tuple[Path | str, str]]:
        return BrokenFileError, (self.path, self.problem)  # it travels from loader workers to the trainer

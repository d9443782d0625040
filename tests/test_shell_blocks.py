"""Every command on a page exists: options parse, settings load, and scripts, make targets and extras are there."""

import contextlib
import functools
import io
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from losspool.cli.app import app
from losspool.lab.grids import read_grid
from losspool.segmentation.base import UserError
from losspool.segmentation.config import load_config

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
PAGES += [*sorted(ROOT.glob("benchmarks/*.md")), *sorted(ROOT.glob("results/**/*.md"))]
SHELLS = {"", "sh", "bash"}
OTHER_LANGUAGES = {"python", "yaml", "text", "{eval-rst}", "{toctree}"}
OTHER_PROGRAMS = {
    "echo",
    "export",
    "mkdir",
    "nnUNetv2_train",  # nnU-Net's
    "ray",  # Ray's
}
"""What shell blocks start beside losspool, Python, make and pip."""
NO_COMMANDS = {
    ("README.md", "@inproceedings"),
    ("data.md", "images/train"),
    ("lab.md", "<!-- losspool"),
}
"""Blocks without a language that hold something else: the page, and how the block begins."""
ENVIRONMENT = re.compile(r"[A-Z_]+=\S*")
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def blocks(path: Path) -> list[str]:
    """Fenced shell blocks, also in a list."""
    found = re.findall(r"^( *)```(\S*)\n(.*?)^ *```$", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert {language for _, language, _ in found} <= SHELLS | OTHER_LANGUAGES, path
    texts = [text for _, language, text in found if language in SHELLS]
    return [
        text
        for text in texts
        if not any(path.name == name and text.lstrip().startswith(start) for name, start in NO_COMMANDS)
    ]


def lines(text: str) -> list[str]:
    found = (line.strip() for line in text.replace("\\\n", " ").splitlines())
    return [line for line in found if line and not line.startswith("#")]


def inline(path: Path) -> list[str]:
    """`losspool …` in the running text, where arguments may be left out."""
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(found.split()) for found in re.findall(r"(?<!`)`(losspool [^`]+)`", text)]


def check(words: list[str]) -> None:
    """One command. Raises what is wrong with it."""
    while words and ENVIRONMENT.fullmatch(words[0]):
        words = words[1:]
    program, *rest = words
    program = Path(program).name
    if program == "srun":
        program, *rest = rest
    if program == "torchrun":
        program, rest = "python", rest[rest.index("-m") :]
    if program in ("python", "python3"):
        if rest[0] == "-m":
            program, rest = rest[1], rest[2:]
        else:
            return check_script(ROOT / rest[0], rest[1:])
    if program == "losspool":
        check_losspool(rest)
    elif program == "make":
        assert set(rest) <= TARGETS, f"make has no target {rest}"
    elif program == "pip":
        named = {name for word in rest for extras in re.findall(r"\[(.*)\]", word) for name in extras.split(",")}
        assert named <= EXTRAS, f"there are no extras {named - EXTRAS}"
    elif program == "pytest":
        assert all((ROOT / word).exists() for word in rest if word.startswith("tests")), rest
    else:
        assert program in OTHER_PROGRAMS | {"venv"}, f"{program} is not listed in OTHER_PROGRAMS"


def check_script(path: Path, arguments: list[str]) -> None:
    code = path.read_text()
    for option in arguments:
        if option.startswith("--"):
            assert f'"{option.partition("=")[0]}"' in code, f"{path.name} has no option {option}"


class UnusableError(Exception):
    """A command that losspool refuses."""


@functools.cache
def recording_command() -> tuple[Any, list[tuple[str, dict[str, Any]]]]:
    """The command line, and the list to which each command adds its name and values instead of running."""
    command, found = typer.main.get_command(app), []

    def replace(name: str, command: Any) -> None:
        for word, each in getattr(command, "commands", {}).items():
            replace(f"{name} {word}", each)
        if name != "losspool" and not getattr(command, "commands", None):
            command.callback = lambda **values: found.append((name, values))

    replace("losspool", command)
    return command, found


def parsed(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """The command's full name and its values, as the command line parses them, without running it."""
    command, found = recording_command()
    found.clear()
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        try:
            command(arguments, prog_name="losspool")
        except SystemExit as end:
            if end.code:
                raise UnusableError(" ".join(said.getvalue().split())) from None
    return found[0] if found else ("losspool", {})


def check_losspool(arguments: list[str]) -> None:
    """The options exist, and the settings of a recipe or grid that comes with the package load."""
    name, values = parsed(arguments)
    if name == "losspool train" and not Path(values["recipe"]).suffix:
        load_config(values["recipe"], values["overrides"] or [])
    if name == "losspool lab run" and not Path(values["grid"]).suffix:
        read_grid(values["grid"]).jobs(Path("out"), values["overrides"] or [])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_shell_blocks_parse(path):
    for line in (line for text in blocks(path) for line in lines(text)):
        check(shlex.split(re.sub(r"\$\(.*?\)", "value", line), comments=True))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_in_the_text_exist(path):
    for command in inline(path):
        try:
            check(shlex.split(command.replace("…", "")))
        except UnusableError as error:
            missing = "Missing (argument|option|command)|^$"  # a group alone prints its help
            if not re.search(missing, str(error)):
                raise


@pytest.mark.parametrize(
    "command",
    [
        "losspool trian streets",
        "losspool train streets --output runs",
        "losspool train streets train.step=5",
        "losspool train nothing",
        "losspool evaluate",
        "losspool lab run nothing",
        "torchrun --nproc-per-node 2 -m losspool train streets loss.p=0.5",
        "python benchmarks/run.py --fast",
        "python benchmarks/none.py",
        "make coffee",
        "pip install '.[everything]'",
        "rm --recursive runs",
    ],
)
def test_wrong_commands_are_found(command):
    with pytest.raises((UnusableError, UserError, AssertionError, OSError)):
        check(shlex.split(command))

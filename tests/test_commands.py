"""The commands in the README and in three pages of the docs run, in their order, on little data and for a step."""

import re
import shlex
from importlib import metadata
from pathlib import Path

import pytest
import torch

from losspool import cli
from losspool.lab.grids.tasks import Outcome, Task
from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.training.trainer import Trainer
from small_data import noise, save, write_folder

ROOT = Path(__file__).parent.parent
SMALL = ["train.steps=1", "train.batch=1", "train.previews=0", "data.workers=0", "data.crop=[48,48]"]
LAB = [["lab", name] for name in ("run", "table", "figures", "report")]
SMALL += ["data.streets_size=[64,64]", "data.streets_train=2", "model.weights=null"]


def commands(path: Path) -> list[list[str]]:
    blocks = re.findall(r"^```(.*?)\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for language, block in blocks for line in block.splitlines() if language == ""]
    return [shlex.split(line)[1:] for line in lines if line.startswith("losspool ")]


def here(task: Task, *_) -> Outcome:
    """A task of a grid in this process: starting one for every run would take a minute."""
    for words in task.commands:
        assert words[0] == "train"
        split = words.index("--out")
        Trainer(load_config(words[1], words[2:split]), Path(words[split + 1]), resume=True).run()
    task.log.parent.mkdir(exist_ok=True)
    task.log.write_text("ran")
    return Outcome(task.name, 0, "")


@pytest.mark.parametrize("name", ["README.md", "docs/get-started.md", "docs/training.md", "docs/lab.md"])
def test_commands_run_as_they_stand(name, tmp_path, monkeypatch):
    found = commands(ROOT / name)
    assert len(found) >= 2
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("losspool.lab.grids.local.run_task", here)
    monkeypatch.setattr("losspool.segmentation.base.process.signal.signal", lambda *_: None)  # not from a thread
    monkeypatch.setattr(
        "losspool.segmentation.data.kinds.streets.dataset.SCENE_COUNTS", {"train": 2, "val": 2, "test": 2}
    )
    (tmp_path / "results").symlink_to(ROOT / "results")
    weeds = write_folder(tmp_path / "weeds", "train", count=2)
    write_folder(weeds, "val", count=1)
    save(tmp_path / "photo.jpg", noise(60, 80))
    for arguments in found:
        arguments = [argument.replace("/data/weeds", str(weeds)) for argument in arguments]
        if arguments[0] == "demo":  # the same with overrides
            arguments = ["lab", "run", "demo", "--out", "demo", *arguments[1:]]
        if arguments[0] == "train" or arguments[:2] == ["lab", "run"]:
            arguments += SMALL + (["train.keep_steps=[]", "train.previews=1"] if arguments[0] == "lab" else [])
        if arguments[0] == "plan":
            arguments += ["--scratch"]  # no download
        monkeypatch.setattr("sys.argv", ["losspool", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0, arguments


def ended(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["losspool", *words])
    with pytest.raises(SystemExit) as done:
        cli.main()
    return done.value.code, capsys.readouterr().out


def test_the_demo_is_its_grid(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("losspool.lab.grids.run_grid", lambda *grid, **options: asked.append((*grid, options)) or True)
    assert ended(monkeypatch, capsys, "demo", "--out", "here")[0] == 0
    ((grid, overrides, options),) = asked
    assert (grid, overrides, options["out"], options["brief"]) == ("demo", [], Path("here"), True)


def test_losspool_alone_greets_with_commands_that_exist(monkeypatch, capsys):
    code, text = ended(monkeypatch, capsys)
    assert code == 0
    named = re.findall(r"^  losspool (\w+)", text, flags=re.MULTILINE)
    assert len(named) == 3
    for name in named:
        assert ended(monkeypatch, capsys, name, "--help")[0] == 0


def test_the_doctor_reports_what_is_here_and_what_is_not(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    weights = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    weights.parent.mkdir(parents=True)
    weights.touch()
    code, text = ended(monkeypatch, capsys, "doctor")
    found = dict(re.split(r": +", line, maxsplit=1) for line in text.splitlines())
    assert code == 0
    assert found["torch"].startswith(f"{torch.__version__}, ")
    assert found["cache"] == f"{tmp_path / 'cache' / 'losspool'}: writable"
    assert found["weights"].startswith(f"{weights.parent}: resnet18; missing: resnet101, ")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # a folder cannot be made in a file
    assert "not writable" in ended(monkeypatch, capsys, "doctor")[1]


def test_the_doctor_knows_every_extra(monkeypatch, capsys):
    known = set(metadata.metadata("losspool").get_all("Provides-Extra")) - {"dev", "docs"}
    text = ended(monkeypatch, capsys, "doctor")[1]
    assert set(re.findall(r"^losspool\[(\w+)\]", text, flags=re.MULTILINE)) == known


def test_every_command_explains_itself(monkeypatch, capsys):
    single = [
        [name]
        for name in ("demo", "doctor", "plan", "train", "evaluate", "predict", "export", "data", "lab", "recipes")
    ]
    for arguments in ([], *single, ["data", "check"], ["data", "import"], ["recipes", "show"], *LAB):
        monkeypatch.setattr("sys.argv", ["losspool", *arguments, "--help"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0
        assert "Usage: losspool" in capsys.readouterr().out

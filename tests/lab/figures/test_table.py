"""The files: which are written, the same bytes every time, and names as they are."""

import struct
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import pytest

from lab_runs import CLASSES, statistics_of, write_lab
from losspool.lab.comparison import Statistics, compare
from losspool.lab.comparison.runs import find_runs
from losspool.lab.figures import style, table, write_figures
from losspool.segmentation.base.errors import UserError

STRANGE = ("$road$ & <script>alert(1)</script>", "_pole_", "line\nbreak \x1b[31m", "100 % \\alpha {x}", "$\\frac{1}$")
SHOWN = (*STRANGE[:2], "line\\nbreak \\x1b[31m", *STRANGE[3:])


def texts(path):
    return {
        "".join(node.itertext()).strip() for node in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    }


def made_up(root, **options):
    return statistics_of(write_lab(root, **options))


def test_without_runs(tmp_path):
    folder = tmp_path / "new" / "folder"
    paths = write_figures(folder, None, [])  # none named: all
    assert paths == [folder / name for name in ("fig1.png", "fig1.svg", "fig2.png", "fig2.svg")]
    assert sorted(folder.iterdir()) == paths  # and nothing is left of writing them
    for path, width in ((paths[0], 8.4), (paths[2], 10)):
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">I", head[16:20])[0] == width * style.DPI
    assert {"‖w‖ₚ = 1", "p = ∞", "‖w‖∞ ≤ τ", "uniform (½, ½)"} <= texts(paths[1])
    assert {"m = n/3, varying p", "p = 1.2", "m/n = 0.8", "(one pixel)", "weight  w* · n"} <= texts(paths[3])


def test_only_some(tmp_path):
    runs = made_up(tmp_path / "runs", seeds=(0,))
    paths = write_figures(tmp_path / "figures", runs, ["fig4", "fig1", "fig1"])
    assert [path.name for path in paths] == ["fig1.png", "fig1.svg", "fig4.png", "fig4.svg"]


def test_all_figures_with_the_same_bytes_whatever_the_users_settings(tmp_path):
    runs = made_up(tmp_path / "runs", seeds=(0, 1))
    paths = write_figures(tmp_path / "first", runs)
    assert [path.name for path in paths] == [f"fig{n}.{kind}" for n in (1, 2, 3, 4) for kind in ("png", "svg")]
    assert {info.name for info in CLASSES} | {"labelled pixels of the class"} <= texts(tmp_path / "first/fig3.svg")
    assert {"road", "building", "pole", "base", "lmp", "step 40"} <= texts(tmp_path / "first/fig4.svg")
    loud = {
        "lines.linewidth": 9,
        "svg.hashsalt": None,
        "font.size": 30,
        "text.parse_math": True,
        "image.aspect": "auto",
    }
    with matplotlib.rc_context(loud):
        again = write_figures(tmp_path / "second", runs)
        assert matplotlib.rcParams["lines.linewidth"] == 9  # and they are left as they were
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]


def test_strange_names_stay_as_they_are(tmp_path):
    classes = tuple(replace(info, name=name) for info, name in zip(CLASSES, STRANGE, strict=True))
    write_figures(tmp_path, made_up(tmp_path / "runs", seeds=(0,), classes=classes), ["fig3", "fig4"])
    assert set(SHOWN) <= texts(tmp_path / "fig3.svg")
    assert set(SHOWN[:3]) <= texts(tmp_path / "fig4.svg")  # the previews show three classes


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["fig5"], "unknown figure 'fig5'; choose from fig1, fig2, fig3, fig4"),
        (["fig1", "Fig2"], "unknown figure 'Fig2'; choose from fig1, fig2, fig3, fig4"),
        (["fig3"], "fig3 is drawn from runs, and none were given"),
        (["fig1", "fig4"], "fig4 is drawn from runs, and none were given"),
    ],
)
def test_wrong_names(tmp_path, only, message):
    with pytest.raises(UserError) as error:
        write_figures(tmp_path, None, only)
    assert str(error.value) == message
    assert not list(tmp_path.iterdir())


@pytest.fixture
def of_runs_alone(monkeypatch):
    """Fig. 1 and 2 take time, and do not depend on the runs."""
    monkeypatch.setattr(table, "_OF_THE_LOSS", {})


@pytest.mark.usefixtures("of_runs_alone")
def test_without_previews(tmp_path, capsys):
    runs = made_up(tmp_path / "runs", seeds=(0,), previews=False)
    paths = write_figures(tmp_path, runs)
    assert [path.name for path in paths] == ["fig3.png", "fig3.svg"]
    said = capsys.readouterr().err.strip()
    folder = tmp_path / "runs" / "base-s0" / "previews"
    reason = f"{folder}: holds no previews (no names.json); train with train.previews above 0"
    assert said == f"left out: fig4, {reason}"
    with pytest.raises(UserError) as error:
        write_figures(tmp_path, runs, ["fig4"])
    assert str(error.value) == reason


@pytest.mark.usefixtures("of_runs_alone")
def test_one_variant(tmp_path, capsys):
    runs = find_runs([write_lab(tmp_path / "runs", seeds=(0,))])[:1]
    assert write_figures(tmp_path, Statistics(compare(runs))) == []
    assert capsys.readouterr().err.count("nothing to compare") == 2  # fig3 and fig4


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/fig1.png: cannot be written"):
        write_figures(tmp_path / "file", None)

"""Fig. 2: what is drawn is what the reference finds, and the files are the same every time."""

import math
import struct
from xml.etree import ElementTree

import matplotlib
import pytest
import torch

from losspool import reference
from losspool.lab import figures, style


def truth(p, m):
    return reference.pool(figures.synthetic_losses(), p=p, m=m).weights


def test_the_parameters_are_the_papers():
    by_p, by_m = figures.optimal_weight_panels()
    assert [curve.p for curve in by_p.curves] == [1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf]
    assert {curve.m for curve in by_p.curves} == {1 / 3}
    assert {curve.p for curve in by_m.curves} == {1.7}
    assert [(type(curve.m), curve.m) for curve in by_m.curves] == [
        (int, 1),
        *((float, share) for share in (0.1, 0.2, 0.4, 0.8, 1.0)),
    ]


def test_losses_are_sorted_and_positive():
    losses = figures.synthetic_losses()
    assert losses.shape == (100,)
    assert losses.dtype == torch.float64
    assert losses[0] > 0
    assert (losses.diff() > 0).all()


def test_lines_are_the_reference_weights():
    with style.styled():
        left, right = figures.draw_optimal_weights().axes[:2]
    by_p = [truth(p, 100 / 3) for p in (1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf)]
    by_m = [truth(1.7, m) for m in (1, 10, 20, 40, 80, 100)]
    for axes, expected in ((left, by_p), (right, by_m)):
        assert len(axes.lines) == len(expected)
        for line, weights in zip(axes.lines, expected, strict=True):
            assert list(line.get_xdata()) == list(range(1, 101))
            drawn = torch.as_tensor(line.get_ydata()) / 100
            assert (drawn - weights).abs().max() <= 1e-12


def test_files(tmp_path, capsys):
    figures.main([str(tmp_path / "new" / "folder")])
    png, svg = tmp_path / "new" / "folder" / "fig2.png", tmp_path / "new" / "folder" / "fig2.svg"
    assert capsys.readouterr().out.split() == [str(png), str(svg)]

    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert width == 1600
    assert 600 < height < 1000

    texts = {
        "".join(node.itertext()).strip() for node in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")
    }
    labels = {line for panel in figures.optimal_weight_panels() for c in panel.curves for line in c.label.split("\n")}
    assert len(labels) == 9 + 6 + 1  # one label has two lines
    assert labels | {"pixels, sorted by loss", "weight  w* · n", "m = n/3, varying p", "p = 1.7, varying m"} <= texts


def test_same_bytes_whatever_the_users_settings(tmp_path):
    first = [path.read_bytes() for path in figures.optimal_weights(tmp_path / "a.first")]
    with matplotlib.rc_context({"lines.linewidth": 9, "svg.hashsalt": None, "font.size": 30}):
        second = [path.read_bytes() for path in figures.optimal_weights(tmp_path / "b")]
        assert matplotlib.rcParams["lines.linewidth"] == 9  # and they are left as they were
    assert first == second
    assert {path.name for path in tmp_path.iterdir()} == {"a.first.png", "a.first.svg", "b.png", "b.svg"}


def test_labels_keep_apart():
    with style.styled():
        axes = figures.Figure().subplots()
        for y in (1.0, 3.0, 1.05):
            axes.plot([0, 1], [0, y])
        style.label_ends(axes, ["one", "three", "nearly one"], gap=0.5)
    assert {text.get_text(): text.xy[1] for text in axes.texts} == {"one": 1.0, "nearly one": 1.5, "three": 3.0}


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--colour"]])
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        figures.main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1

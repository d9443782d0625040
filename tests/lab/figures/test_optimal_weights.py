"""Fig. 2: what is drawn is what the reference finds."""

import math

import torch
from matplotlib.figure import Figure

from losspool import reference
from losspool.lab.figures import optimal_weights, style


def truth(p, m):
    return reference.pool(optimal_weights.synthetic_losses(), p=p, m=m).weights


def test_the_parameters_are_the_papers():
    by_p, by_m = optimal_weights.optimal_weight_panels()
    assert [curve.p for curve in by_p.curves] == [1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf]
    assert {curve.m for curve in by_p.curves} == {1 / 3}
    assert {curve.p for curve in by_m.curves} == {1.7}
    assert [(type(curve.m), curve.m) for curve in by_m.curves] == [
        (str, "1px"),
        *((float, share) for share in (0.1, 0.2, 0.4, 0.8, 1.0)),
    ]


def test_losses_are_sorted_and_positive():
    losses = optimal_weights.synthetic_losses()
    assert losses.shape == (100,)
    assert losses.dtype == torch.float64
    assert losses[0] > 0
    assert (losses.diff() > 0).all()


def test_lines_are_the_reference_weights():
    with style.styled():
        left, right = optimal_weights.draw().axes[:2]
    by_p = [truth(p, 100 / 3) for p in (1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf)]
    by_m = [truth(1.7, m) for m in (1, 10, 20, 40, 80, 100)]
    for axes, expected in ((left, by_p), (right, by_m)):
        assert len(axes.lines) == len(expected)
        for line, weights in zip(axes.lines, expected, strict=True):
            assert list(line.get_xdata()) == list(range(1, 101))
            drawn = torch.as_tensor(line.get_ydata()) / 100
            assert (drawn - weights).abs().max() <= 1e-12


def test_words():
    with style.styled():
        figure = optimal_weights.draw()
    words = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert words == {curve.label for panel in optimal_weights.optimal_weight_panels() for curve in panel.curves}
    assert len(words) == 9 + 6
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["m = n/3, varying p", "p = 1.7, varying m"]
    assert figure.axes[0].get_ylabel() == "weight  w* · n"
    assert {axes.get_xlabel() for axes in figure.axes[2:]} == {"pixels, sorted by loss"}


def test_labels_keep_apart():
    with style.styled():
        axes = Figure().subplots()
        for y in (1.0, 3.0, 1.05):
            axes.plot([0, 1], [0, y])
        style.label_ends(axes, ["one", "three", "nearly one"], gap=0.5)
    assert {text.get_text(): text.xy[1] for text in axes.texts} == {"one": 1.0, "nearly one": 1.5, "three": 3.0}

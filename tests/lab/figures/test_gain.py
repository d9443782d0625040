"""Fig. 3: every point is the number that plain Python finds in metrics.jsonl, and every name can be read."""

import json
import statistics
from dataclasses import replace

import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.text import Text

from lab_runs import CLASSES, lab_config, statistics_of, write_lab, write_lab_run
from losspool.lab.comparison import Statistics, compare
from losspool.lab.comparison.runs import find_runs
from losspool.lab.figures import gain, style
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.data.kinds.cityscapes import CLASSES as CITYSCAPES
from plain_bootstrap import T_975


def drawn(root, **options):
    with style.styled():
        return gain.draw(statistics_of(root, **options))


def dots(axes):
    (found,) = (each for each in axes.collections if isinstance(each, PathCollection))
    return found


def bars(axes):
    found = (each for each in axes.collections if isinstance(each, LineCollection))
    return [path.vertices.tolist() for each in found for path in each.get_paths()]


def class_scores(folder, steps):
    """By class: its IoU, mean over the steps; in percent."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    ious = [line["iou"] for line in lines if line["split"] == "val" and line["step"] in steps]
    assert len(ious) == len(steps)
    return [100 * statistics.fmean(column) for column in zip(*ious, strict=True)]


def gains(root, seeds, steps=(40, 50, 60), ours="lmp"):
    """By class: its gain with each seed."""
    found = []
    for seed in seeds:
        new, old = (class_scores(root / f"{name}-s{seed}", steps) for name in (ours, "base"))
        found.append([x - y for x, y in zip(new, old, strict=True)])
    return [list(column) for column in zip(*found, strict=True)]


def pixels(folder):
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["pixels"]


@pytest.mark.parametrize("seeds", [(0, 1, 2), (0, 3)])
def test_points_and_intervals(tmp_path, seeds):
    write_lab(tmp_path, seeds=seeds)
    (axes,) = drawn(tmp_path).axes
    expected, bounds = [], []
    for count, values in zip(pixels(tmp_path / "base-s0"), gains(tmp_path, seeds), strict=True):
        mean = statistics.fmean(values)
        reach = T_975[len(seeds) - 1] * statistics.stdev(values) / len(seeds) ** 0.5
        expected.append([count, mean])
        bounds += [[count, mean - reach], [count, mean + reach]]
    assert dots(axes).get_offsets().tolist() == [pytest.approx(point, rel=1e-12) for point in expected]
    assert [end for bar in bars(axes) for end in bar] == [pytest.approx(end, rel=1e-6) for end in bounds]
    assert axes.get_xscale() == "log"
    bottom, top = axes.get_ylim()
    cut = ", cut at the frame" * any(not bottom < end < top for _, end in bounds)
    assert axes.get_xlabel() == f"labelled pixels of the class\nbars: 95% interval over seeds{cut}"
    assert [list(line.get_ydata()) for line in axes.lines] == [[0, 0]]  # the zero line
    positive = sum(mean > 0 for _, mean in expected)
    held, lost = sum(low > 0 for _, low in bounds[::2]), sum(high < 0 for _, high in bounds[1::2])
    assert held > 0
    assert (
        axes.get_title(loc="left")
        == f"lmp: {positive} of 5 classes gain\nby the whole interval {held} gain, {lost} lose"
    )


def test_chosen_steps(tmp_path):
    write_lab(tmp_path, seeds=(0,), previews=False)
    (axes,) = drawn(tmp_path, steps=(20, 30)).axes
    values = [value for (value,) in gains(tmp_path, (0,), (20, 30))]
    assert dots(axes).get_offsets()[:, 1].tolist() == pytest.approx(values)


def test_one_seed_has_no_intervals(tmp_path):
    write_lab(tmp_path, seeds=(0,), previews=False)
    (axes,) = drawn(tmp_path).axes
    assert bars(axes) == []
    assert axes.get_xlabel() == "labelled pixels of the class"


def test_gains_are_full_and_losses_hollow(tmp_path):
    write_lab_run(tmp_path / "base-s0", lab_config("base"), level=0.4, previews=False)
    write_lab_run(tmp_path / "lmp-s0", lab_config("lmp"), level=0.405, previews=False)
    (axes,) = drawn(tmp_path).axes
    values = [value for (value,) in gains(tmp_path, (0,))]
    assert 0 < sum(value > 0 for value in values) < 5
    assert axes.get_title(loc="left") == f"lmp: {sum(value > 0 for value in values)} of 5 classes gain"
    faces = dots(axes).get_facecolors()
    for value, face in zip(values, faces, strict=True):
        assert (face.min() == 1) == (value <= 0)


def test_a_class_that_occurs_nowhere_is_left_out(tmp_path):
    write_lab(tmp_path, seeds=(0, 1), absent=2, previews=False)
    (axes,) = drawn(tmp_path).axes
    assert len(dots(axes).get_offsets()) == 4
    assert {text.get_text() for text in axes.texts} == {info.name for info in CLASSES} - {"pole"}
    assert axes.get_title(loc="left").startswith("lmp: 4 of 4 classes gain")


def test_a_class_that_is_only_predicted_is_left_out(tmp_path):
    write_lab(tmp_path, seeds=(0,), previews=False)
    for path in tmp_path.glob("*/metrics.jsonl"):
        path.write_text(path.read_text().replace("[400000,", "[0,"))
    (axes,) = drawn(tmp_path).axes
    assert len(dots(axes).get_offsets()) == 4


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_names_do_not_overlap(tmp_path, seeds):
    """19 classes at only five numbers of pixels: crowded."""
    write_lab(tmp_path, seeds=seeds, classes=CITYSCAPES, previews=False)
    figure = drawn(tmp_path)
    with style.styled():
        figure.set_dpi(style.DPI)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        boxes = {text.get_text(): Text.get_window_extent(text).padded(-0.5) for text in axes.texts}
        assert set(boxes) == {info.name for info in CITYSCAPES}
        frame = axes.get_window_extent()
        places = axes.transData.transform(dots(axes).get_offsets())
    for name, box in boxes.items():
        assert [other for other, theirs in boxes.items() if box.overlaps(theirs)] == [name]
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
        assert frame.y0 <= box.y0 <= box.y1 <= frame.y1
        assert not any(box.contains(x, y) for x, y in places)


def test_names_stand_at_their_points(tmp_path):
    write_lab(tmp_path, seeds=(0,), previews=False)
    (axes,) = drawn(tmp_path).axes
    places = dict(zip((info.name for info in CLASSES), dots(axes).get_offsets().tolist(), strict=True))
    assert {text.get_text(): list(text.xy) for text in axes.texts} == places


def test_without_room_the_console_says_so(tmp_path, capsys):
    classes = tuple(replace(CLASSES[0], name=f"{'long ' * 12}{index}") for index in range(60))
    write_lab(tmp_path, seeds=(0,), classes=classes, previews=False)
    (axes,) = drawn(tmp_path).axes
    assert len(axes.texts) < 60
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("fig3 has no room for the names of: long long")
    assert len(axes.texts) + said.count(",") + 1 == 60


@pytest.fixture
def several(tmp_path):
    """base and four others, of which ``focal`` is the best."""
    for place, method in enumerate(("base", "lmp", "focal", "bootstrapping", "base_plus")):
        level = 0.5 if method == "focal" else 0.3 + 0.02 * place
        write_lab_run(tmp_path / f"{method}-s0", lab_config(method), level=level, previews=False)
    return tmp_path


def test_a_panel_per_variant(several):
    runs = [run for run in find_runs([several]) if run.config.method != "base_plus"]
    with style.styled():
        figure = gain.draw(Statistics(compare(runs)))
    titles = [axes.get_title(loc="left").split(":")[0] for axes in figure.axes]
    assert sorted(titles) == ["bootstrapping", "focal", "lmp"]
    for axes, method in zip(figure.axes, titles, strict=True):
        values = [value for (value,) in gains(several, (0,), ours=method)]
        assert dots(axes).get_offsets()[:, 1].tolist() == pytest.approx(values)
        assert axes.get_ylim() == figure.axes[0].get_ylim()


def test_of_many_variants_the_best(several):
    (axes,) = drawn(several).axes
    assert axes.get_title(loc="left").startswith("focal: ")
    assert axes.get_xlabel().endswith("\nthe best by mIoU of 4 variants")


def test_variants_without_a_common_seed(tmp_path, capsys):
    for method, seed in (("base", 0), ("lmp", 0), ("focal", 1)):
        write_lab_run(tmp_path / f"{method}-s{seed}", lab_config(method, seed), previews=False)
    (axes,) = drawn(tmp_path).axes
    assert axes.get_title(loc="left").startswith("lmp: ")
    assert "best" not in axes.get_xlabel()
    assert "left out of fig3: focal shares no seed and class with base" in capsys.readouterr().err
    runs = [run for run in find_runs([tmp_path]) if run.config.method != "lmp"]
    with pytest.raises(UserError, match="no other variant shares a seed and a class with base"):
        gain.draw(Statistics(compare(runs)))


def test_one_variant_is_no_comparison(tmp_path):
    write_lab_run(tmp_path / "run", lab_config("lmp"), previews=False)
    with pytest.raises(UserError, match="all runs are of one variant, lmp: there is nothing to compare it with"):
        drawn(tmp_path)


def test_long_intervals_do_not_press_the_points_together(tmp_path):
    write_lab(tmp_path, seeds=(0, 1), previews=False)
    (axes,) = drawn(tmp_path).axes
    low, high = axes.get_ylim()
    values = [0, *dots(axes).get_offsets()[:, 1]]
    assert low < min(values) < max(values) < high
    assert high - low < 2.3 * (max(values) - min(values))

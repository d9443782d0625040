"""Fig. 4: every panel is the preview it stands for, in its place, and the colours are named."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from lab_runs import CLASSES, lab_config, statistics_of, write_lab, write_lab_run
from losspool.lab.figures import evolution, style
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.prediction.pictures import palette_image, save_png


def drawn(root, **options):
    with style.styled():
        return evolution.draw(statistics_of(root, **options))


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB"))


def panels(figure):
    """By place: rows from above, columns from the left."""
    ordered = sorted(figure.axes, key=lambda axes: (-round(axes.get_position().y0, 3), axes.get_position().x0))
    rows = {round(axes.get_position().y0, 3) for axes in ordered}
    width = len(ordered) // len(rows)
    return [ordered[start : start + width] for start in range(0, len(ordered), width)]


def shown(axes):
    (image,) = axes.images
    return np.asarray(image.get_array())


def legend(figure):
    (found,) = figure.legends
    colours = [tuple(round(255 * value) for value in to_rgb(patch.get_facecolor())) for patch in found.get_patches()]
    return dict(zip([text.get_text() for text in found.get_texts()], colours, strict=True))


def files(root, row, steps, numbers=((0, 0), (1, 1))):
    """What a row of the figure must show: two rows for each image, the baseline's run and the other's."""
    number, method = numbers[row // 2][row % 2], ("base-s0", "lmp-s0")[row % 2]
    left = root / "base-s0" / "previews" / f"{numbers[row // 2][0]:02d}-{('image', 'label')[row % 2]}.png"
    return [left, *(root / method / "previews" / f"{number:02d}-step-{step:07d}.png" for step in steps)]


def test_panels_are_the_previews(tmp_path):
    write_lab(tmp_path, seeds=(0, 1))
    steps = (10, 20, 30, 40, 50, 60)
    rows = panels(drawn(tmp_path))
    assert [len(row) for row in rows] == [7] * 4
    for place, row in enumerate(rows):
        for axes, path in zip(row, files(tmp_path, place, steps), strict=True):
            np.testing.assert_array_equal(shown(axes), pixels(path))
    assert [axes.get_title() for axes in rows[0]] == ["image, label", *(f"step {step}" for step in steps)]
    assert [[text.get_text() for text in row[1].texts] for row in rows] == [["base"], ["lmp"]] * 2
    assert not any(axes.get_title() or axes.texts for row in rows[1:] for axes in row[2:])


def test_legend_names_the_classes_shown(tmp_path):
    write_lab(tmp_path, seeds=(0,))
    assert legend(drawn(tmp_path)) == {info.name: info.color for info in CLASSES[:3]}
    for path in tmp_path.glob("*/previews/01-label.png"):
        labels = np.asarray(Image.open(path)).copy()
        labels[0, 0] = 255
        save_png(palette_image(labels, CLASSES), path)
    for path in tmp_path.glob("lmp-s0/previews/01-step-0000060.png"):
        labels = np.asarray(Image.open(path)).copy()
        labels[3, 5] = 4
        save_png(palette_image(labels, CLASSES), path)
    expected = {info.name: info.color for info in (*CLASSES[:3], CLASSES[4])}
    assert legend(drawn(tmp_path)) == expected | {"void": (0, 0, 0)}


def test_many_steps_are_spread_evenly(tmp_path):
    write_lab(tmp_path, seeds=(0,))
    for path in tmp_path.glob("*/previews/??-step-0000060.png"):
        for step in range(70, 220, 10):
            path.with_name(path.name.replace("0000060", f"{step:07d}")).write_bytes(path.read_bytes())
    titles = [axes.get_title() for axes in panels(drawn(tmp_path))[0][1:]]
    # 21 validations: every 20/7-th of them, rounded
    assert titles == [f"step {step}" for step in (10, 40, 70, 100, 120, 150, 180, 210)]


def test_only_common_steps(tmp_path):
    write_lab(tmp_path, seeds=(0,))
    for name in ("base-s0/previews/00-step-0000030.png", "lmp-s0/previews/01-step-0000060.png"):
        (tmp_path / name).unlink()
    rows = panels(drawn(tmp_path))
    assert [axes.get_title() for axes in rows[0][1:]] == [f"step {step}" for step in (10, 20, 40, 50)]
    np.testing.assert_array_equal(shown(rows[3][4]), pixels(files(tmp_path, 3, (50,))[1]))


def test_images_are_matched_by_name(tmp_path):
    """A run with more previews has other images under the same numbers."""
    write_lab(tmp_path, seeds=(0,))
    names = tmp_path / "lmp-s0" / "previews" / "names.json"
    names.write_text(json.dumps(["another", "scene 0"]))
    rows = panels(drawn(tmp_path))
    assert len(rows) == 2
    for place, row in enumerate(rows):
        for axes, path in zip(row, files(tmp_path, place, (10, 20, 30, 40, 50, 60), ((0, 1),)), strict=True):
            np.testing.assert_array_equal(shown(axes), pixels(path))


def test_at_most_two_images(tmp_path):
    for method in ("base", "lmp"):
        config = lab_config(method)
        write_lab_run(tmp_path / f"{method}-s0", replace(config, train=replace(config.train, previews=3)))
    assert len(panels(drawn(tmp_path))) == 4


def test_the_best_other_variant_and_the_chosen_baseline(tmp_path):
    for method, level in (("base", 0.3), ("lmp", 0.4), ("focal", 0.5)):
        write_lab_run(tmp_path / method, lab_config(method), level=level)
    names = [row[1].texts[0].get_text() for row in panels(drawn(tmp_path))[:2]]
    assert names == ["base", "focal"]
    names = [row[1].texts[0].get_text() for row in panels(drawn(tmp_path, baseline="focal"))[:2]]
    assert names == ["focal", "lmp"]


def test_nothing_overlaps_or_is_cut(tmp_path):
    write_lab(tmp_path, seeds=(0,))
    write_lab_run(tmp_path / "other", lab_config("lmp", p=1.7, lr=0.02), level=0.3)
    figure = drawn(tmp_path)
    rows = panels(figure)
    assert rows[1][1].texts[0].get_text() == "lmp\np = 1.3\nlr = 0.01"
    with style.styled():
        figure.draw_without_rendering()
        boxes = [axes.get_window_extent() for row in rows for axes in row]
        boxes += [row[1].texts[0].get_window_extent() for row in rows]
        boxes += [axes.title.get_window_extent() for axes in rows[0]] + [figure.legends[0].get_window_extent()]
        page = figure.bbox
    for index, box in enumerate(boxes):
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])


def test_a_portrait_keeps_its_shape(tmp_path):
    write_lab(tmp_path, seeds=(0,))
    for path in tmp_path.glob("*/previews/00-*.png"):
        Image.open(path).transpose(Image.Transpose.ROTATE_90).save(path)
    figure = drawn(tmp_path)
    with style.styled():
        figure.draw_without_rendering()
        box = panels(figure)[0][1].get_window_extent()
    assert box.height / box.width == pytest.approx(64 / 48, rel=0.01)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "names.json").unlink(), r"lmp-s0/previews: holds no previews \(no names.json\)"),
        (lambda folder: (folder / "names.json").write_text("{"), r"names.json: cannot be read"),
        (lambda folder: (folder / "names.json").write_text("[1]"), r"names.json: is not a list of names"),
        (
            lambda folder: (folder / "names.json").write_text('["a", "b"]'),
            r"base-s0/previews and .*lmp-s0/previews hold previews of different images",
        ),
        (
            lambda folder: [path.unlink() for path in folder.glob("00-step-*")],
            r"lmp-s0/previews hold no previews of the same step",
        ),
        (
            lambda folder: (folder / "01-step-0000020.png").write_bytes(b"no picture"),
            r"01-step-0000020.png: not an image that Pillow can read",
        ),
        (
            lambda folder: (folder / "01-step-0000020.png").write_bytes(
                (folder / "01-step-0000020.png").read_bytes()[:120]
            ),
            r"01-step-0000020.png: the image cannot be decoded",
        ),
        (
            lambda folder: Image.new("RGB", (4, 4)).save(folder / "00-step-0000060.png"),
            r"00-step-0000060.png: is not a picture of labels with a palette",
        ),
    ],
)
def test_what_is_missing_or_damaged(tmp_path, damage, message):
    write_lab(tmp_path, seeds=(0,))
    damage(tmp_path / "lmp-s0" / "previews")
    with pytest.raises(UserError, match=message) as error:
        drawn(tmp_path)
    assert "\n" not in str(error.value)


def test_a_missing_label(tmp_path):
    write_lab(tmp_path, seeds=(0,))
    (tmp_path / "base-s0" / "previews" / "00-label.png").unlink()
    with pytest.raises(UserError, match=r"00-label.png: the file does not exist"):
        drawn(tmp_path)

"""The pictures in a report are those of the previews, small and coloured alike; broken ones cost no other."""

import base64
import io

import numpy as np
from PIL import Image

from lab_runs import CLASSES, lab_config, write_lab_run
from report_parts import report


def picture(data: dict, place: int) -> Image.Image:
    kind, _, content = data["previews"]["pictures"][place].partition(";base64,")
    assert kind in ("data:image/png", "data:image/jpeg")
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_previews(lab, data):
    previews = data["previews"]
    assert [data["runs"][each["run"]]["name"] for each in previews["runs"]] == ["base-s0", "lmp-s0"]
    assert len(set(previews["pictures"])) == len(previews["pictures"])
    first, second = (each["images"] for each in previews["runs"])
    assert [image["name"] for image in first] == ["scene 0", "scene 1"]
    assert (first[0]["image"], first[0]["label"]) == (second[0]["image"], second[0]["label"])
    for place, run in zip((first, second), ("base-s0", "lmp-s0"), strict=True):
        for number, image in enumerate(place):
            assert [frame["step"] for frame in image["frames"]] == [10, 20, 30, 40, 50, 60]
            for frame in image["frames"]:
                stem = lab / run / "previews" / f"{number:02d}-step-{frame['step']:07d}"
                shown, written = picture(data, frame["prediction"]), Image.open(f"{stem}.png")
                assert np.array_equal(shown.convert("RGB"), written.convert("RGB"))


def test_the_image_with_the_most_classes_comes_first(tmp_path):
    folder = write_lab_run(tmp_path / "runs" / "base", lab_config("base"))
    with Image.open(folder.previews / "01-label.png") as label:
        palette, pixels = label.getpalette(), np.array(label)
    pixels[:2, :2] = [[3, 4], [0, 1]]
    richer = Image.fromarray(pixels)
    richer.putpalette(palette)
    richer.save(folder.previews / "01-label.png")
    images = report(tmp_path / "runs").data["previews"]["runs"][0]["images"]
    assert [image["name"] for image in images] == ["scene 1", "scene 0"]


def test_weight_maps_are_coloured_on_one_scale(lab, data):
    scale = data["previews"]["scale"]
    assert scale["top"] == 4.0
    assert not scale["open"]
    assert (scale["colors"][0], scale["colors"][-1]) == ("#440154", "#fde725")
    frame = data["previews"]["runs"][1]["images"][0]["frames"][2]
    shown = np.asarray(picture(data, frame["weights"]).convert("RGB")).reshape(-1, 3)
    grey = np.asarray(Image.open(lab / "lmp-s0" / "previews" / "00-step-0000030-weights.png")).ravel()
    assert {tuple(color) for color in shown[grey == 102].tolist()} == {(253, 231, 37)}  # 4.0, the top
    eighth = tuple(bytes.fromhex(scale["colors"][2][1:]))  # 0.5 of 4.0
    (low,) = {tuple(color) for color in shown[grey == 12].tolist()}
    assert max(abs(a - b) for a, b in zip(low, eighth, strict=True)) <= 4


def test_large_pictures_become_smaller_without_new_colours(tmp_path):
    folder = write_lab_run(tmp_path / "runs" / "big", lab_config("base"))
    random = np.random.default_rng(0)
    for path in folder.previews.glob("00-*.png"):
        with Image.open(path) as image:
            noise = random.integers(0, 3, (100, 1300)).astype(np.uint8)
            large = Image.fromarray(noise) if image.mode != "RGB" else image.resize((1300, 100))
            if image.mode == "P":
                large.putpalette(image.getpalette())
        large.save(path)
    data = report(tmp_path / "runs").data
    image = data["previews"]["runs"][0]["images"][0]
    for place in (image["image"], image["label"], image["frames"][0]["prediction"], image["frames"][0]["weights"]):
        assert picture(data, place).size == (640, 49)
    colors = {color for _, color in picture(data, image["label"]).convert("RGB").getcolors()}
    assert colors == {info.color for info in CLASSES[:3]}


def test_many_variants_show_the_pictures_of_eight(tmp_path):
    for place in range(10):
        write_lab_run(tmp_path / "runs" / f"{place}", lab_config("lmp", p=1 + place / 10))
    write_lab_run(tmp_path / "runs" / "z", lab_config("base"))
    data = report(tmp_path / "runs").data
    shown = [data["runs"][each["run"]]["name"] for each in data["previews"]["runs"]]
    assert shown == ["z", "0", "1", "2", "3", "4", "5", "6"]
    assert data["previews"]["left_out"] == 3
    assert data["title"] == "streets: 11 variants"


def test_previews_may_be_incomplete(tmp_path):
    folder = write_lab_run(tmp_path / "runs" / "one", lab_config("base"))
    for name in ("names.json", "00-image.png", "00-label.png", "01-step-0000010-weights.png"):
        (folder.previews / name).unlink()
    data = report(tmp_path / "runs").data
    second, first = data["previews"]["runs"][0]["images"]
    assert (first["name"], first["image"], first["label"]) == ("image 0", None, None)
    assert [frame["weights"] is None for frame in second["frames"]] == [True] + 5 * [False]


def test_a_broken_picture_is_named_and_costs_no_other(tmp_path, capsys):
    folder = write_lab_run(tmp_path / "runs" / "one", lab_config("base"))
    for name in ("00-label.png", "00-step-0000020.png", "01-step-0000030-weights.png"):
        (folder.previews / name).write_bytes(b"no picture")
    second, first = report(tmp_path / "runs").data["previews"]["runs"][0]["images"]
    assert first["label"] is None
    assert [frame["step"] for frame in first["frames"]] == [10, 30, 40, 50, 60]
    assert [frame["weights"] is None for frame in second["frames"]] == [False, False, True, False, False, False]
    said = capsys.readouterr().err.replace("\n", "")
    for name in ("00-label.png", "00-step-0000020.png", "01-step-0000030-weights.png"):
        assert f"{name}: not an image that Pillow can read" in said

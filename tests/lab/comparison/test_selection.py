"""Scores over some images or some classes: as if only these had been evaluated."""

import json

import pytest

from lab_runs import CLASSES, lab_config, statistics_of, write_lab, write_lab_evaluation, write_lab_run
from lab_tables import rows, tables
from losspool.lab.figures import gain
from losspool.lab.tables import paper
from losspool.lab.tables.formats import format_table
from report_parts import Parts, report

KINDS = ("methods", "classes", "metrics", "worst", "sensitivity")
CHOSEN = ("pole", "rider")
PLACES = [place for place, info in enumerate(CLASSES) if info.name in CHOSEN]


def write_sweep(root):
    """base, and lmp with two values of p; two seeds, two checkpoints."""
    write_lab(root, seeds=(0, 1), evaluated=(50, 60), previews=False)
    for seed in (0, 1):
        config = lab_config("lmp", seed, p=1.7)
        folder = write_lab_run(root / f"lmp-p1.7-s{seed}", config, level=0.5, previews=False)
        write_lab_evaluation(folder, config, level=0.5, steps=(50, 60))
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("selection") / "runs")


@pytest.fixture(scope="module")
def everything(root):
    """All numbers without a selection."""
    return numbers(root)


def rewrite(root, change):
    """Every evaluation's checkpoints."""
    for path in root.glob("*/evaluation-*.json"):
        stored = json.loads(path.read_text())
        for entry in stored["checkpoints"]:
            change(entry)
        path.write_text(json.dumps(stored))


def keep_images(beginning):
    def change(entry):
        """By plain sums."""
        entry["per_image"] = [image for image in entry["per_image"] if image["image"].startswith(beginning)]
        hits, labelled, predicted = (
            [sum(column) for column in zip(*(image[what] for image in entry["per_image"]), strict=True)]
            for what in ("hits", "labelled", "predicted")
        )
        entry["pixels"] = labelled
        entry["iou"] = [h / (a + b - h) for h, a, b in zip(hits, labelled, predicted, strict=True)]
        entry["miou"] = sum(entry["iou"]) / len(entry["iou"])

    return change


def keep_classes(entry):
    for owner in (entry, *entry.get("per_image", ())):
        for key in {"iou", "pixels", "hits", "labelled", "predicted"} & set(owner):
            owner[key] = [owner[key][place] for place in PLACES]
    entry["miou"] = sum(entry["iou"]) / len(entry["iou"])
    entry.pop("confusion", None)


def forget_classes(root):
    """As if the runs had never known others."""
    rewrite(root, keep_classes)
    for path in root.glob("*/metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if line["split"] == "val":
                keep_classes(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in root.glob("*/run.json"):
        about = json.loads(path.read_text())
        path.write_text(json.dumps({**about, "classes": [about["classes"][place] for place in PLACES]}))


def numbers(root, *kinds, source="test", **options):
    """By table, row and column; of one set of statistics, so that images are resampled once."""
    return values(tables(root, *(kinds or KINDS), source=source, **options))


def values(made):
    assert made
    return {
        (name, row, column): value
        for name, table in made.items()
        for row, cells in rows(table).items()
        for column, value in cells.items()
    }


def differ(one, other):
    """In every table."""
    return {key[0] for key in one | other if one.get(key) != other.get(key)} == {key[0] for key in one}


@pytest.mark.parametrize("drive", ["0001TP", "Seq05VD"])
def test_as_if_only_these_images_had_been_evaluated(root, everything, drive, tmp_path):
    rewrite(write_sweep(tmp_path), keep_images(drive))
    made = tables(root, *KINDS, source="test", images=f"{drive}*")
    assert values(made) == numbers(tmp_path)
    assert differ(values(made), everything)
    assert all(any(f"images {drive}*" in note for note in table.notes) for table in made.values())


def test_as_if_there_were_only_these_classes(root, everything, tmp_path):
    forget_classes(write_sweep(tmp_path))
    for source, kinds in (("test", KINDS), ("validation", ("methods", "convergence"))):
        made = tables(root, *kinds, source=source, classes=CHOSEN)
        assert values(made) == numbers(tmp_path, *kinds, source=source)
        assert differ(values(made), everything if source == "test" else numbers(root, *kinds, source=source))
        assert all(any("classes pole, rider" in note for note in table.notes) for table in made.values())


def test_images_and_classes_together(root, tmp_path):
    rewrite(write_sweep(tmp_path), keep_images("0001TP"))
    forget_classes(tmp_path)
    assert numbers(root, images="0001TP*", classes=CHOSEN) == numbers(tmp_path)


def test_everything_chosen_changes_nothing(root, everything):
    assert numbers(root, images="*", classes=[info.name for info in CLASSES]) == everything


def test_what_was_not_asked_for_need_not_be_counted(tmp_path):
    """One checkpoint is scored, and the other was evaluated by an older version."""
    write_lab(tmp_path, evaluated=(50, 60), previews=False)
    expected = numbers(tmp_path, "methods", images="Seq05VD*", steps=(60,))
    rewrite(tmp_path, lambda entry: entry["step"] == 50 and entry.pop("per_image"))
    assert numbers(tmp_path, "methods", images="Seq05VD*", steps=(60,)) == expected


def test_the_papers_numbers_are_of_everything(tmp_path, monkeypatch):
    for seed in (0, 1):
        for method in ("base", "lmp"):
            config = lab_config(method, seed)
            config = lab_config(method, seed, data=type(config.data)("cityscapes"))
            folder = write_lab_run(tmp_path / f"{method}-s{seed}", config, previews=False)
            write_lab_evaluation(folder, config, level=0.5)
    printed = ((50.0,) * (len(CLASSES) + 1),) * 2
    monkeypatch.setitem(paper.TABLE3, "cityscapes", {"lmp": printed})  # as if it were of the classes of these runs
    monkeypatch.setitem(paper.CLASSES, "cityscapes", tuple(info.name for info in CLASSES))

    def from_the_paper(**choice):
        made = tables(tmp_path, "methods", "classes", source="test", **choice)
        labels = [row[0].text for row in made["classes"].rows]
        return [any("paper" in name for name in names) for names in (made["methods"].columns, labels)]

    assert from_the_paper() == [True, True]
    for choice in ({"images": "Seq05VD*"}, {"classes": ["pole"]}):
        assert from_the_paper(**choice) == [False, False]


def test_a_class_that_these_images_do_not_have(tmp_path):
    """Everybody gets 0 for it, which is reported."""
    write_lab(tmp_path, evaluated=(60,), previews=False)

    def change(entry):
        for image in entry["per_image"]:
            image["hits"][4] = image["labelled"][4] = 0
            image["predicted"][4] = 3

    rewrite(tmp_path, change)
    table = tables(tmp_path, "methods", source="test", images="Seq05VD*")["methods"]
    assert "rider is not labelled: all predict it and score 0." in table.notes


def test_figure_and_report_score_them_too(root):
    pattern = "*[!4]??"  # blocks enough for an interval over images
    every, some = (statistics_of(root, source="test", images=pattern) for pattern in (None, pattern))
    variant = some.comparison.others[0]
    points = {point.name: point for point in gain.class_gains(some, variant)}
    expected = rows(tables(root, "classes", source="test", images=pattern)["classes"])[f"{variant.label} Δ"]
    assert {name: point.gain for name, point in points.items()} == pytest.approx(
        {name: float(expected[name]) for name in points}
    )
    assert [point.pixels for point in points.values()] != every.comparison.pixels
    data = report(root, source="test", images=pattern).data
    assert (data["images"], report(root, source="test").data["images"]) == (pattern, None)
    found = next(each for each in data["variants"] if each["label"] == variant.label)
    over_images = some.image_intervals(variant).miou
    assert found["score"]["mean"] == pytest.approx(some.score(variant).mean)
    assert (found["over_images"]["low"], found["over_images"]["high"]) == (over_images.low, over_images.high)
    assert [each["mean"] for each in found["class_gains"]] == [each.mean for each in some.class_gains(variant)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--scores", "test", "--images", "Seq06*"],
            "no image is called 'Seq06*'; an example of a name is '0001TP_008550'",
        ),
        (["--images", "Seq05VD*"], "not of single images; name an evaluation that counted them"),
        (["--scores", "test", "--images", ""], "no image is called ''"),
        (["--scores", "test", "--images", "Seq05VD*", "--kind", "convergence"], "training scores them all together"),
        (["--classes", "pole,ridder"], "unknown class 'ridder'; choose from 'road', 'building', 'pole'"),
        (["--classes", ""], "unknown class ''"),
        (["--blocks", "4"], "not of single images; name an evaluation that counted them"),
        (["--scores", "test", "--blocks", "0"], "--blocks is a number of neighbouring images and must be at least 1"),
    ],
)
def test_mistakes(root, arguments, words, command):
    code, output, error = command("lab", "table", root, *arguments)
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert words in error


def test_the_papers_tables_leave_nothing_to_choose(command):
    code, output, error = command("lab", "table", "--paper", "--images", "a*")
    assert (code, output) == (2, "")
    assert "--paper takes no --baseline, --scores, --steps, --images, --blocks or --classes" in error


def test_blocks_change_the_intervals_over_images_alone(root):
    frames, photos = (numbers(root, "methods", images="*[!4]??", blocks=blocks) for blocks in (None, 1))
    changed = {column for name, row, column in photos if photos[name, row, column] != frames.get((name, row, column))}
    assert changed == {f"95 % interval over {what}, {end}" for what in ("images", "both") for end in ("low", "high")}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("group", "patient {}", "its images have groups, which are drawn whole; leave --blocks out"),
        ("image", "{:03d}_480x360", "no names of images are equal up to their last number, such as '000_480x360'"),
    ],
)
def test_images_that_have_no_neighbours(tmp_path, command, key, value, words):
    def change(entry):
        for place, image in enumerate(entry["per_image"]):
            image[key] = value.format(place)

    write_lab(tmp_path, evaluated=(60,), previews=False)
    rewrite(tmp_path, change)
    code, output, error = command("lab", "table", tmp_path, "--scores", "test", "--blocks", "2")
    assert (code, output, words in error) == (2, "", True)


def test_nothing_to_score(tmp_path, command):
    write_lab(tmp_path, evaluated=(60,), previews=False, absent=2)
    code, _, error = command("lab", "table", tmp_path, "--classes", "pole")
    assert (code, "none of the classes pole occurs" in error) == (2, True)

    def void(entry):
        for what in ("hits", "labelled", "predicted"):
            entry["per_image"][0][what] = [0] * len(CLASSES)

    rewrite(tmp_path, void)
    code, _, error = command("lab", "table", tmp_path, "--scores", "test", "--images", "0001TP_008550")
    assert (code, "no pixel of the images '0001TP_008550' is labelled" in error) == (2, True)


def test_the_commands_take_it(root, tmp_path, command):
    arguments = [root, "--scores", "test", "--images", "Seq05VD*"]
    code, output, _ = command(
        "lab", "table", *arguments, "--classes", "pole, rider", "--kind", "methods", "--format", "csv"
    )
    expected = tables(root, "methods", source="test", images="Seq05VD*", classes=CHOSEN)["methods"]
    assert (code, output) == (0, format_table(expected, "csv"))
    code, output, _ = command("lab", "table", *arguments)
    assert (code, "step at which" in output) == (0, False)
    assert command("lab", "figures", *arguments, "--only", "fig3", "--out", tmp_path)[0] == 0
    assert command("lab", "report", *arguments, "-o", tmp_path / "report.html")[0] == 0
    assert Parts((tmp_path / "report.html").read_text()).data["images"] == "Seq05VD*"

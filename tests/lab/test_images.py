"""Scores over some of the images: as if only these had been evaluated."""

import json

import pytest

from lab_runs import write_lab
from lab_tables import rows, tables
from losspool.lab.tables.formats import comma_separated
from report_parts import Parts, report


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_lab(tmp_path_factory.mktemp("images") / "runs", evaluated=(50, 60), previews=False)


def keep_only(root, beginning):
    """Rewrite the evaluations to what they would be over some images, by plain sums."""
    for path in root.glob("*/evaluation-*.json"):
        entries = json.loads(path.read_text())["checkpoints"]
        for entry in entries:
            entry["per_image"] = [image for image in entry["per_image"] if image["image"].startswith(beginning)]
            hits, labelled, predicted = (
                [sum(column) for column in zip(*(image[what] for image in entry["per_image"]), strict=True)]
                for what in ("hits", "labelled", "predicted")
            )
            entry["pixels"] = labelled
            entry["iou"] = [h / (a + b - h) for h, a, b in zip(hits, labelled, predicted, strict=True)]
            entry["miou"] = sum(entry["iou"]) / len(entry["iou"])
        path.write_text(json.dumps({"checkpoints": entries}))


def numbers(root, kind, **options):
    found = rows(tables(root, kind, source="test", **options)[kind])
    return {(row, column): value for row, cells in found.items() for column, value in cells.items()}


@pytest.mark.parametrize("drive", ["0001TP", "Seq05VD"])
@pytest.mark.parametrize("kind", ["methods", "classes", "worst"])
def test_as_if_only_these_had_been_evaluated(root, drive, kind, tmp_path):
    write_lab(tmp_path, evaluated=(50, 60), previews=False)
    keep_only(tmp_path, drive)
    expected, found = numbers(tmp_path, kind), numbers(root, kind, images=f"{drive}*")
    assert found == expected
    assert found != numbers(root, kind)
    table = tables(root, kind, source="test", images=f"{drive}*")[kind]
    assert any(f"images {drive}*" in note for note in table.notes)


def test_a_pattern_for_all_changes_nothing(root):
    for kind in ("methods", "classes"):
        assert numbers(root, kind, images="*") == numbers(root, kind)


def test_the_report_scores_them_too(root):
    some, every = (report(root, source="test", images=images).data for images in ("Seq05VD*", None))
    assert (some["images"], every["images"]) == ("Seq05VD*", None)
    for label, found in rows(tables(root, "methods", source="test", images="Seq05VD*")["methods"]).items():
        (variant,) = (variant for variant in some["variants"] if variant["label"] == label)
        assert 100 * variant["score"]["mean"] == pytest.approx(float(found["mean IoU"]))
        assert variant["score"] not in [other["score"] for other in every["variants"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scores", "test", "--images", "Seq06*"], "no image is called 'Seq06*'; a name is such as '0001TP_008550'"),
        (["--images", "Seq05VD*"], "not of single images; name an evaluation that counted them"),
        (["--scores", "test", "--images", ""], "no image is called ''"),
    ],
)
def test_mistakes(root, arguments, words, command):
    code, output, error = command("lab", "table", root, *arguments)
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert words in error


def test_the_commands_take_it(root, tmp_path, command):
    arguments = [root, "--scores", "test", "--images", "Seq05VD*"]
    code, output, _ = command("lab", "table", *arguments, "--kind", "methods", "--format", "csv")
    assert (code, output) == (0, comma_separated(tables(root, "methods", source="test", images="Seq05VD*")["methods"]))
    code, output, _ = command("lab", "figures", *arguments, "--only", "fig3", "--out", tmp_path)
    assert (code, (tmp_path / "fig3.png").is_file()) == (0, True)
    assert command("lab", "report", *arguments, "-o", tmp_path / "report.html")[0] == 0
    assert Parts((tmp_path / "report.html").read_text()).data["images"] == "Seq05VD*"

"""Documents that show what commands print: filled, checked, and never run anything else."""

import pytest

from lab_runs import lab_config, write_lab, write_lab_run
from result_scripts import refused, script

publish = script("publish")
COMMAND = "losspool lab table runs --kind methods --format md"
TEXT = f"# Title\n\nBefore.\n\n<!-- {COMMAND} -->\nold\n<!-- end -->\n\nAfter.\n"


@pytest.fixture
def folder(tmp_path):
    write_lab(tmp_path / "runs", previews=False)
    (tmp_path / "page.md").write_text(TEXT, encoding="utf-8")
    return tmp_path


def fill(folder, *options, documents=("page.md",)):
    publish.main(list(options), [folder / name for name in documents], folder)


def told(folder, *options, documents=("page.md",)):
    return refused(publish.main, *options, documents=[folder / name for name in documents], folder=folder)


def test_a_place_holds_what_its_command_prints(folder, command, monkeypatch):
    fill(folder)
    monkeypatch.chdir(folder)
    code, output, _ = command(*COMMAND.split()[1:])
    assert code == 0
    assert "| lmp | 3 |" in output
    page = (folder / "page.md").read_text(encoding="utf-8")
    assert page == f"# Title\n\nBefore.\n\n<!-- {COMMAND} -->\n\n{output}\n<!-- end -->\n\nAfter.\n"


def test_check_tells_of_runs_that_came_and_of_numbers_that_were_changed(folder):
    assert "page.md is not what its commands print" in told(folder, "--check")
    assert (folder / "page.md").read_text(encoding="utf-8") == TEXT
    fill(folder)
    fill(folder, "--check")
    page = (folder / "page.md").read_text(encoding="utf-8")
    (folder / "page.md").write_text(
        page.replace("| lmp | 3 | **", "| lmp | 3 | **9").replace("| lmp | 3 | ", "| lmp | 4 | ")
    )
    assert "is not what" in told(folder, "--check")
    fill(folder)
    assert (folder / "page.md").read_text(encoding="utf-8") == page
    write_lab_run(folder / "runs/focal", lab_config("focal"), previews=False)
    assert "is not what" in told(folder, "--check")


def test_a_command_that_fails_leaves_every_document_alone(folder):
    wrong = TEXT.replace("table runs", "table nowhere")
    (folder / "wrong.md").write_text(wrong, encoding="utf-8")
    message = told(folder, documents=("page.md", "wrong.md"))
    assert "losspool lab table nowhere --kind methods --format md: error: nowhere: there is no such folder" in message
    assert (folder / "page.md").read_text(encoding="utf-8") == TEXT
    assert (folder / "wrong.md").read_text(encoding="utf-8") == wrong


def test_nothing_but_tables_is_run(folder):
    others = "<!-- touch made -->\n<!-- end -->\n<!-- losspool lab report runs -o made -->\n<!-- end -->\n"
    (folder / "others.md").write_text(others, encoding="utf-8")
    assert "has no place to fill" in told(folder, documents=("others.md",))
    (folder / "page.md").write_text(TEXT + others, encoding="utf-8")
    fill(folder)
    assert (folder / "page.md").read_text(encoding="utf-8").endswith(others)
    assert sorted(path.name for path in folder.iterdir()) == ["others.md", "page.md", "runs"]


@pytest.mark.skipif(not all(page.is_file() for page in publish.DOCUMENTS), reason="no results are published yet")
def test_the_published_documents_are_current():
    publish.main(["--check"])

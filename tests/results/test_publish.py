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


def reported(folder, *options, documents=("page.md",)):
    return refused(publish.main, *options, documents=[folder / name for name in documents], folder=folder)


def test_a_place_holds_what_its_command_prints(folder, command, monkeypatch):
    fill(folder)
    monkeypatch.chdir(folder)
    code, output, _ = command(*COMMAND.split()[1:])
    assert code == 0
    assert "| lmp | 3 |" in output
    page = (folder / "page.md").read_text(encoding="utf-8")
    assert page == f"# Title\n\nBefore.\n\n<!-- {COMMAND} -->\n\n{output}\n<!-- end -->\n\nAfter.\n"


def test_check_reports_runs_that_came_and_numbers_that_were_changed(folder):
    assert "page.md: is not what its commands print" in reported(folder, "--check")
    assert (folder / "page.md").read_text(encoding="utf-8") == TEXT
    fill(folder)
    fill(folder, "--check")
    page = (folder / "page.md").read_text(encoding="utf-8")
    (folder / "page.md").write_text(
        page.replace("| lmp | 3 | **", "| lmp | 3 | **9").replace("| lmp | 3 | ", "| lmp | 4 | ")
    )
    assert "is not what" in reported(folder, "--check")
    fill(folder)
    assert (folder / "page.md").read_text(encoding="utf-8") == page
    write_lab_run(folder / "runs/focal", lab_config("focal"), previews=False)
    assert "is not what" in reported(folder, "--check")


def test_a_command_that_fails_leaves_every_document_alone(folder):
    wrong = TEXT.replace("table runs", "table nowhere")
    (folder / "wrong.md").write_text(wrong, encoding="utf-8")
    message = reported(folder, documents=("page.md", "wrong.md"))
    assert "losspool lab table nowhere --kind methods --format md: nowhere: there is no such folder" in message
    assert (folder / "page.md").read_text(encoding="utf-8") == TEXT
    assert (folder / "wrong.md").read_text(encoding="utf-8") == wrong


def test_nothing_but_tables_is_run(folder):
    (folder / "others.md").write_text("<!-- touch made -->\n", encoding="utf-8")
    assert "has no place to fill" in reported(folder, documents=("others.md",))
    (folder / "others.md").write_text(TEXT + "<!-- losspool lab report runs -o made -->\n", encoding="utf-8")
    assert "is not the beginning or end of a place" in reported(folder, documents=("others.md",))
    assert sorted(path.name for path in folder.iterdir()) == ["others.md", "page.md", "runs"]


def test_an_example_in_a_block_of_code_is_left_alone(folder):
    example = f"```\n<!-- {COMMAND} -->\n<!-- end -->\n```\n"
    (folder / "page.md").write_text(TEXT + example, encoding="utf-8")
    fill(folder)
    assert (folder / "page.md").read_text(encoding="utf-8").endswith(example)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("<!-- end -->", "<!-- end --> ", "page.md: its last place has no line '<!-- end -->'"),
        ("old\n<!-- end -->", f"old\n<!-- {COMMAND} -->\n<!-- end -->", "line 7: the place before it has no line"),
        ("old\n<!-- end -->", "<!-- end -->\n\nnumbers\n<!-- end -->", "line 9 is not the beginning or end of a place"),
        ("md -->", "md --> ", "line 5 is not the beginning or end of a place"),
        ("md -->", "md-->", "line 5 is not the beginning or end of a place"),
        ("<!-- losspool", " <!-- losspool", "line 5 is not the beginning or end of a place"),
        ("--kind methods", "--kind 'methods", "No closing quotation"),
        ("--format md", "--format md --out made", "must have --format md and neither --out nor --help"),
        ("--format md", "--format md --out=made", "must have --format md and neither --out nor --help"),
        ("--format md", "", "must have --format md"),
        ("--kind", "--knd", "--knd"),
    ],
)
def test_a_mistake_in_a_document_changes_nothing(folder, old, new, words):
    wrong = TEXT.replace(old, new)
    assert wrong != TEXT
    (folder / "page.md").write_text(wrong, encoding="utf-8")
    assert words in reported(folder)
    assert words in reported(folder, "--check")
    assert (folder / "page.md").read_text(encoding="utf-8") == wrong
    assert sorted(path.name for path in folder.iterdir()) == ["page.md", "runs"]


def test_a_document_that_is_not_there(folder):
    assert "none.md: cannot be read" in reported(folder, documents=("none.md",))


def test_the_published_documents_are_current():
    publish.main(["--check"])


def cells(line):
    return [cell.strip(" *").replace("<u>", "").replace("</u>", "") for cell in line.strip().strip("|").split("|")]


def test_the_readme_shows_what_the_pages_of_results_show():
    """Its rows are copied by hand: each must stand in the first table by method of the page that it links to."""
    lines = (publish.ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| [") and "](results/" in line]
    assert rows
    for row in rows:
        page = publish.ROOT / row.partition("](")[2].partition(")")[0]
        table = page.read_text(encoding="utf-8").partition("**Methods: mIoU in %**")[2].partition("\n\n**")[0]
        by_method = {found[0]: found for found in map(cells, table.splitlines()) if len(found) > 1}
        _, plain, pooled, gain, interval = cells(row)
        published = next(found for method, found in by_method.items() if method.startswith(r"lmp\_loss\_only"))
        assert [plain, pooled, gain, interval] == [by_method["base"][2], published[2], published[4], published[-1]]


@pytest.mark.parametrize("page", publish.DOCUMENTS, ids=lambda page: page.parent.name)
def test_every_number_that_opens_a_page_stands_in_its_tables(page):
    """The summary's table is copied by hand from the tables that commands fill."""
    summary, _, rest = page.read_text(encoding="utf-8").partition("\n## ")
    filled = {cell for line in rest.splitlines() if line.startswith("|") for cell in cells(line)}
    rows = [cells(line)[1:] for line in summary.splitlines() if line.startswith("|") and "---" not in line][1:]
    assert [cell for row in rows for cell in row if cell and cell not in filled] == []

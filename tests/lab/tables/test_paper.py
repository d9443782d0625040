"""The table code, fed with the paper's numbers, prints the paper's rows, and says where they contradict each other."""

import re
from pathlib import Path

import pytest

from losspool.lab.tables import paper, paper_tables
from losspool.lab.tables.formats import format_table
from losspool.lab.tables.paper import m_sweep, table1, table2, table3
from losspool.segmentation.data.kinds import cityscapes, voc

# The rows of the paper's Table 1, copied from its source (a comma there is a slip of the pen).
TABLE1 = """
1.0 74.35 74.64 74.64 74.54 0.17
1.1 74.34 74.61 74.60 74.52 0.15
1.2 74.42 74.60 74.77 74.60 0.18
1.3 74.52 74.71 74.69 74.64 0.10
1.4 74.33 74.51 74.49 74.44 0.10
1.5 74.03 73.99 74.04 74.02 0.03
1.6 74.05 74.42 74.52 74.33 0.25
1.7 74.10 74.56 74.74 74.57 0.17
1.8 73.65 74.18 74.17 74.00 0.30
1.9 73.97 74.21 74.48 74.22 0.26
2.3 73.93 74.23 74.12 74.09 0.15
base_plus 73.12 73.16 73.10 73.13 0.03
"""


def shown(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_table_1():
    table = table1()
    assert table.columns == ["p", "150k", "160k", "165k", "Mean", "Std.Dev.", "paper"]
    for row, printed in zip(shown(table), TABLE1.split("\n")[1:-1], strict=True):
        expected = printed.split()
        assert row[:4] == expected[:4]
        assert row[6] == f"{expected[4]} ± {expected[5]}"
        if row[0] != "1.7":
            assert row[4:6] == expected[4:]
    assert shown(table)[7][4:6] == ["74.47", "0.33"]
    assert [note for note in table.notes if "the paper prints" in note] == [
        "p = 1.7: the paper prints 74.57 ± 0.17, its columns give 74.47 ± 0.33."
    ]
    written = format_table(table, "md")
    assert "**74.64**" in written  # bold in the paper
    assert "<u>74.60</u>" in written  # underlined there


def test_another_contradiction_would_be_named(monkeypatch):
    monkeypatch.setitem(paper.TABLE1, 1.0, (74.35, 74.64, 74.64, 74.53, 0.17))
    assert any("p = 1.0: the paper prints 74.53 ± 0.17" in note for note in table1().notes)


def test_the_sweep_of_m():
    assert shown(m_sweep()) == [
        ["m = 10 %", "74.09", "0.22"],
        ["m = 25 %", "74.64", "0.10"],
        ["m = 50 %", "73.44", "0.21"],
    ]


def test_table_2():
    assert shown(table2("cityscapes"))[-5:] == [
        ["base", "72.55", "0.04"],
        ["base_plus", "73.63", "0.04"],
        ["median_frequency", "69.81", "0.08"],
        ["lmp_loss_only", "74.17", "0.03"],
        ["lmp", "75.06", "0.09"],
    ]
    assert [row[1] for row in shown(table2("voc"))[-5:]] == ["75.74", "75.42", "74.93", "76.01", "76.29"]
    assert "**75.06**" in format_table(table2("cityscapes"), "md")


def test_table_3():
    for dataset, names in (("cityscapes", cityscapes.CLASSES), ("voc", voc.CLASSES)):
        table = table3(dataset)
        assert list(table.columns[1:-1]) == [info.name for info in names]  # ours, so that our runs line up with it
        assert table.notes == []  # its means are those of its classes, but for the last digit
    rows = {row[0]: row[1:] for row in shown(table3("cityscapes"))}
    assert rows["base_plus Mean"][:3] == ["97.37", "80.60", "90.99"]
    assert rows["lmp Mean"][-3:] == ["65.15", "75.76", "75.06"]
    assert rows["base_plus Std.Dev."][16] == "3.12"
    gains = [
        ours - theirs
        for ours, theirs in zip(*(paper.TABLE3["cityscapes"][m][0][:-1] for m in ("lmp", "base_plus")), strict=True)
    ]
    assert sum(gain > 0 for gain in gains) == 18  # "18/19 classes"


def test_numbers_are_those_of_the_papers_source():
    """Where the paper's LaTeX is at hand: each number of ours stands in it."""
    source = Path(__file__).parents[4] / "shared" / "paper" / "loss-max-pooling.tex"
    if not source.exists():
        pytest.skip("the paper's source is not here")
    text = source.read_text().replace("74,35", "74.35")
    numbers = set(re.findall(r"\d+\.\d+", text))
    for table in paper_tables():
        for row in shown(table):
            for cell in row[1:]:
                for number in re.findall(r"\d+\.\d+", cell):
                    known = number in numbers or number.removesuffix("0") in numbers  # 71.0 is 71.00 here
                    assert known or (row[0] == "1.7" and number in ("74.47", "0.33")), (table.name, row)


def test_the_command(command):
    code, output, _ = command("lab", "table", "--paper")
    assert code == 0
    assert "p = 1.7: the paper prints 74.57 ± 0.17, its columns give 74.47 ± 0.33." in output

"""How often intervals over seeds and images cover the truth, as results/interval_coverage.py counts it."""

from result_scripts import script

interval_coverage = script("interval_coverage")


def test_the_joint_interval_covers_the_truth_and_a_nested_bootstrap_does_not():
    joint, nested = interval_coverage.coverage(seeds=3, ratio=5.0, cases=200)
    assert 0.9 <= joint <= 0.99
    assert nested < 0.87


def test_the_table_has_a_row_for_every_combination(capsys):
    interval_coverage.main(["--cases", "1"])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + len(interval_coverage.SEEDS) * len(interval_coverage.RATIOS)

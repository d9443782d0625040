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
    combined = len(interval_coverage.EFFECTS) * len(interval_coverage.SEEDS) * len(interval_coverage.RATIOS)
    assert len(table) == 2 + combined


def test_skewed_effects_are_covered_less_often():
    normal, _ = interval_coverage.coverage(seeds=5, ratio=0.05, cases=300)
    skewed, _ = interval_coverage.coverage(seeds=5, ratio=0.05, cases=300, effect="skewed")
    assert 0.8 < skewed < normal

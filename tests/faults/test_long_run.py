"""A run stays level: the short version of long_run.py."""

from faults.long_run import KEEP_LAST, MOST_CHECKPOINTS, level, watch


def test_memory_open_files_and_checkpoints_stay_level(tmp_path):
    samples = watch(tmp_path, 300)
    early, late = level(samples, 100, 50), level(samples, 300, 50)
    # Shows a leak of 90 kB a step; the 2,500 steps of long_run.py show one of 7 kB, which is a step's crops.
    assert late.resident <= 1.05 * early.resident
    assert late.loader <= 1.05 * early.loader
    assert late.files == early.files
    assert max(each.checkpoints for each in samples) <= MOST_CHECKPOINTS
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) <= KEEP_LAST + 1

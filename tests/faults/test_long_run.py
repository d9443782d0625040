"""A run stays level: the short version of long_run.py."""

from faults.long_run import KEEP_LAST, MOST_CHECKPOINTS, Level, is_level, level, watch


def test_memory_open_files_and_checkpoints_stay_level(tmp_path):
    samples = watch(tmp_path, 300)
    early, late = level(samples, 100, 50), level(samples, 300, 50)
    # Shows a leak of 90 kB a step; the 2,500 steps of long_run.py show one of 7 kB, which is a step's crops.
    assert is_level(early, late), (early, late)
    assert max(each.checkpoints for each in samples) <= MOST_CHECKPOINTS
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) <= KEEP_LAST + 1


def test_growth_of_either_process_is_noticed():
    early = Level(resident=300.0, loader=200.0, files=12)
    assert is_level(early, Level(resident=314.0, loader=209.0, files=12))
    for change in ({"resident": 316.0}, {"loader": 211.0}, {"files": 13}, {"files": 11}):
        assert not is_level(early, early._replace(**change))

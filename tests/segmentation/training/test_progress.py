"""What a run prints, with and without a terminal."""

import os
import re

import pytest

from losspool.segmentation.base import console
from losspool.segmentation.training import progress
from losspool.segmentation.training.progress import class_line, cores_hint, in_words, shown_progress
from runs_for_tests import train, write_recipe


def lines(text):
    return [line for line in text.splitlines() if re.match(r"step \d+ of ", line)]


def test_without_a_terminal_there_are_lines(tmp_path, capsys):
    train(write_recipe(tmp_path), tmp_path / "run")
    first, last = lines(capsys.readouterr().err)
    assert re.fullmatch(r"step 4 of 12: loss \d\.\d{4}, train mIoU 0\.\d{3}, \S+ s per step, \d+ s left", first)
    assert re.fullmatch(r"step 12 of 12: loss \d\.\d{4}, train mIoU 0\.\d{3}, \S+ s per step", last)


def test_a_line_every_thirty_seconds_with_the_time_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with shown_progress(1000, 100, visible=True) as show:
        for step in range(110, 201, 10):
            now[0] += 10  # a second per step
            show({"step": step, "loss": 1.0, "miou": 0.5})
    found = lines(capsys.readouterr().err)
    assert [line.split()[1] for line in found] == ["110", "140", "170", "200"]
    assert found[1].endswith("1 s per step, 14 min 20 s left")
    with shown_progress(10, 0, visible=False) as show:  # another rank
        show({"step": 10, "loss": 1.0, "miou": 0.5})
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_every_class(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(console, "_force_terminal", True)
    train(write_recipe(tmp_path), tmp_path / "run")
    shown = capsys.readouterr().err
    assert len(re.findall(r"  soil \d\.\d{3}, weed \d\.\d{3}, crop plant \d\.\d{3}", shown)) == 2
    assert not lines(shown)


def test_a_class_that_does_not_occur():
    assert class_line(["soil", "weed"], [0.5, None]) == "  soil 0.500, weed –"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.6, "1 min"), (3600, "1 h"), (3661, "1 h 1 min"), (86400 * 3 + 5, "3 d"), (61, "1 min 1 s")],
)
def test_durations(seconds, words):
    assert in_words(seconds) == words


@pytest.mark.parametrize(
    ("load", "threads", "hint"),
    [(0.2, 4, None), (0.9, 4, "--threads 3"), (3.8, 2, "--threads 1"), (3.8, 1, None), (2.0, 2, None), (0, 8, None)],
)
def test_a_hint_when_others_take_the_cores(load, threads, hint, monkeypatch, tmp_path):
    """Of 4 cores, ``load`` work while the process sleeps."""
    stat = tmp_path / "stat"

    def write(done):
        busy = round(100 * load * done)
        stat.write_text(f"cpu  {busy} 0 0 {round(400 * done) - busy} 0 0 0 0 0 0\ncpu0 1 2 3 4\n")

    write(1)
    monkeypatch.setattr(progress, "STAT", str(stat))
    monkeypatch.setattr(progress.time, "sleep", lambda seconds: write(2))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    found = cores_hint(threads)
    assert (found is None) == (hint is None)
    assert found is None or found.endswith(hint)


def test_threads_of_the_command(tmp_path, command, monkeypatch):
    asked = []
    monkeypatch.setattr("torch.set_num_threads", asked.append)
    assert command("train", write_recipe(tmp_path, steps=1), "--out", tmp_path / "run", "--threads", 3)[0] == 0
    assert asked == [3]

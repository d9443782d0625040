"""Collecting runs to publish them: their small text files, whole, and nothing of this machine."""

import json

import pytest

from lab_runs import lab_config, write_lab, write_lab_run
from losspool.segmentation.config.schema import DataConfig
from result_scripts import refused, script

collect = script("collect")


@pytest.fixture
def lab(tmp_path):
    return write_lab(tmp_path / "lab", evaluated=(60,), previews=False)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(folder):
    """Which files were written, and when."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def gather(*folders, out):
    collect.main([*map(str, folders), "--out", str(out)])


def test_small_text_files_alone_are_copied(lab, tmp_path):
    for name in ("checkpoints/step-0000060.pt", "previews/00-image.png", "events.out", ".partial"):
        (lab / "lmp-s1" / name).parent.mkdir(exist_ok=True)
        (lab / "lmp-s1" / name).write_bytes(b"large")
    gather(lab, out=tmp_path / "out")
    kept = ("config.yaml", "run.json", "metrics.jsonl", "evaluation-test-none-60.json")
    runs = [f"{method}-s{seed}" for method in ("base", "lmp") for seed in (0, 1, 2)]
    assert contents(tmp_path / "out") == {
        f"{run}/{name}": (lab / run / name).read_bytes() for run in runs for name in kept
    }


def test_the_tables_of_the_copies_are_those_of_the_runs(lab, tmp_path, command):
    gather(lab, out=tmp_path / "out")
    first, second = (command("lab", "table", folder, "--scores", "test") for folder in (lab, tmp_path / "out"))
    assert first == second
    assert "interval over images" in first[1]


def test_again_changes_nothing_and_what_is_new_is_taken(lab, tmp_path):
    out = tmp_path / "out"
    gather(lab, out=out)
    before = written(out)
    gather(lab / "base-s0", lab, out=out)
    assert written(out) == before
    (lab / "base-s0/evaluation-test-none-60.json").rename(lab / "base-s0/evaluation-test-none-50.json")
    (out / "base-s1/metrics.jsonl").write_text("old")
    gather(lab, out=out)
    assert contents(out) == contents(lab)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "stopped"}, "lmp-s2: the run is not finished (its status is 'stopped')"),
        ({"status": "running"}, "lmp-s2: the run is not finished (its status is 'running')"),
        ({"log": ["/home/me/log"]}, "lmp-s2/run.json: holds a path of this machine, '/home/me/log'"),
    ],
)
def test_a_run_that_is_not_fit_stops_all(lab, tmp_path, change, words):
    path = lab / "lmp-s2/run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert words in refused(collect.main, lab, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_that_failed_is_taken_where_it_is_asked_for(lab, tmp_path):
    path = lab / "lmp-s2/run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "failed", "step": 3}))
    (lab / "lmp-s2/metrics.jsonl").write_text("")  # no validation either
    assert "lmp-s2: the run is not finished (its status is 'failed'; --failed takes it all the same)" in refused(
        collect.main, lab, "--out", tmp_path / "out"
    )
    collect.main([str(lab), "--out", str(tmp_path / "out"), "--failed"])
    assert contents(tmp_path / "out") == contents(lab)
    (lab / "lmp-s2/metrics.jsonl").unlink()  # trained again, it failed before its first line
    collect.main([str(lab), "--out", str(tmp_path / "out"), "--failed"])
    assert contents(tmp_path / "out") == contents(lab)
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running"}))
    assert "not finished" in refused(collect.main, lab, "--out", tmp_path / "out", "--failed")


@pytest.mark.parametrize("root", ["/data/camvid", "~/camvid"])
def test_a_config_with_a_path_of_this_machine(lab, tmp_path, root):
    write_lab_run(lab / "x", lab_config("lmp", 7, data=DataConfig("camvid", root)), previews=False)
    reported = refused(collect.main, lab, "--out", tmp_path / "out")
    assert f"x/config.yaml: holds a path of this machine, '{root}'" in reported
    assert not (tmp_path / "out").exists()


def test_a_relative_path_is_fine(tmp_path):
    write_lab_run(tmp_path / "x", lab_config("lmp", data=DataConfig("camvid", "../data/camvid")), previews=False)
    gather(tmp_path / "x", out=tmp_path / "out")
    assert (tmp_path / "out/x/config.yaml").is_file()


def test_two_runs_of_one_name(lab, tmp_path):
    write_lab_run(tmp_path / "other/lmp-s0", lab_config("lmp", 9), previews=False)
    reported = refused(collect.main, lab, tmp_path / "other", "--out", tmp_path / "out")
    assert "are runs of the same name" in reported


@pytest.mark.parametrize("name", ["evaluation-test-none-60.json", "metrics.jsonl", "config.yaml", "run.json"])
def test_a_damaged_file_is_named(lab, tmp_path, name):
    path = lab / "lmp-s0" / name
    path.write_text("{" + path.read_text()[:-20])
    assert f"lmp-s0/{name}" in refused(collect.main, lab, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_run_at_all(tmp_path):
    assert "holds no run" in refused(collect.main, tmp_path, "--out", tmp_path / "out")

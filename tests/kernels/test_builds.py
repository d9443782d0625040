"""Every kernel builds, within limits, for GPUs that are not there: in a process without the interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "kernel_builds.py"
KERNELS = {
    "average",
    "count_pass",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "finish",
    "merge_corners",
    "upsampled_backward",
    "upsampled_forward",
    "weigh",
}


TARGETS = {"installed": ["sm_80", "sm_90", "gfx942"], "newer": ["sm_90"]}
"""By Triton. tests/scripts/kernel_builds.py builds for all of them with either."""


@pytest.fixture(scope="module", params=TARGETS)
def builds(request, tmp_path_factory):
    """What each build takes, with the Triton that is installed, and with a newer one in the folder NEWER_TRITON."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    command = [sys.executable, str(SCRIPT), *TARGETS[request.param]]
    if request.param == "installed":
        command.append("--more")
    elif "NEWER_TRITON" in os.environ:
        environment["PYTHONPATH"] = os.environ["NEWER_TRITON"]
    else:
        pytest.skip("NEWER_TRITON is not set")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {build["target"] for build in found} == set(TARGETS[request.param])
    return found


def test_every_kernel_builds_for_every_target(builds):
    for target in {build["target"] for build in builds}:
        assert {build["kernel"] for build in builds if build["target"] == target} == KERNELS


def test_registers(builds):
    for build in builds:
        assert build["registers"] <= 128, build
        assert build["spills"] == 0, build


def test_sums_do_not_depend_on_the_order_of_programs(builds):
    assert not [build for build in builds if build["float_atomics"]]


def test_precision(builds):
    """The hardware's logarithm has an absolute error that q would multiply; denormal losses must not become zero."""
    for build in builds:
        assert build.get("rough_logarithms", 0) == 0, build
        assert build.get("flushed_denormals", 0) == 0, build


def test_assertions_are_built_in(builds):
    assert all(build["assertions"] > 0 for build in builds if build["kernel"] == "average")
    assert not any(build["assertions"] for build in builds if build["kernel"] != "average")

"""Tests that need other frameworks. ``make test-integrations`` sets the variable; without it they are not collected."""

import os

import pytest

FRAMEWORKS = os.environ.get("LOSSPOOL_INTEGRATIONS") == "1"
_NEED_THEM = ("huggingface", "lightning", "metrics", "naive_swaps")
collect_ignore = [] if FRAMEWORKS else [f"test_{name}.py" for name in _NEED_THEM]
# test_pages.py and test_recording.py run everywhere: they need torch, or choose the pages that need no more.

if FRAMEWORKS:
    # Nothing here needs a network, and no framework shall wait for one.
    os.environ |= {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    os.environ |= {"WANDB_ERROR_REPORTING": "false"}

    from other_packages import import_torchvision

    import_torchvision()  # before transformers, timm and torchmetrics look for it


def pytest_collection_modifyitems(items):
    for item in items if FRAMEWORKS else ():
        if "integrations" in item.path.parts:  # the frameworks' warnings are their own
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture
def local_trackers(tmp_path, monkeypatch):
    """The folder that W&B (offline) and MLflow (a store of files) write into."""
    wandb = pytest.importorskip("wandb", reason="W&B is not installed")
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.chdir(tmp_path)
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    wandb.teardown()  # both remember an earlier test's folder
    mlflow.set_tracking_uri(f"file:{tmp_path}/mlruns")
    return tmp_path

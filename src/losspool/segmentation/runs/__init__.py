"""A run's folder: its lock, checkpoints, metrics and description; trackers beside it."""

from losspool.segmentation.runs.checkpoints import (
    checkpoint_errors,
    checkpoint_path,
    checkpoint_weights,
    newest_checkpoint,
    prune,
    read_checkpoint,
    steps_in,
    write_checkpoint,
)
from losspool.segmentation.runs.folder import (
    RunFolder,
    chosen_steps,
    default_folder,
    own_checkpoint,
    run_name,
    write_config,
)
from losspool.segmentation.runs.lock import RunLock
from losspool.segmentation.runs.resume_rules import FREE_TO_CHANGE, check_folder, check_unsaved, never_stepped
from losspool.segmentation.runs.run_log import (
    MetricsFile,
    describe_run,
    described,
    read_metrics,
    source_commit,
    status,
)
from losspool.segmentation.runs.trackers import Trackers, check_trackers

__all__ = [
    "FREE_TO_CHANGE",
    "MetricsFile",
    "RunFolder",
    "RunLock",
    "Trackers",
    "check_folder",
    "check_trackers",
    "check_unsaved",
    "checkpoint_errors",
    "checkpoint_path",
    "checkpoint_weights",
    "chosen_steps",
    "default_folder",
    "describe_run",
    "described",
    "never_stepped",
    "newest_checkpoint",
    "own_checkpoint",
    "prune",
    "read_checkpoint",
    "read_metrics",
    "run_name",
    "source_commit",
    "status",
    "steps_in",
    "write_checkpoint",
    "write_config",
]

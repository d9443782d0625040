"""The ``losspool train`` command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[Path, typer.Argument(help="Recipe, or a run's config.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings such as method=lmp loss.p=1.5 train.steps=500.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/<recipe>-<method>-<seed>).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run, or start it if it does not exist.")] = False,
) -> None:
    """Train a network."""
    from losspool.segmentation.base import Interrupted, say
    from losspool.segmentation.config import load_config
    from losspool.segmentation.training import Trainer

    config = load_config(recipe, overrides or [])
    folder = out or Path("runs") / f"{config.recipe}-{config.method}-{config.seed}"
    trainer = Trainer(config, folder, resume=resume)
    try:
        trainer.run()
    except Interrupted as stopped:
        if trainer.main:
            several = trainer.fabric.world_size > 1
            start = ["torchrun", "…", "-m", "losspool"] if several else ["losspool"]  # torchrun's options are unknown
            words = [shlex.quote(str(word)) for word in (recipe, *(overrides or []), "--out", folder, "--resume")]
            say(f"stopped at step {trainer.state.step}; resume with: {' '.join([*start, 'train', *words])}")
        raise typer.Exit(128 + stopped.signal) from None
    if trainer.main:
        say(f"finished: {folder}")

"""The command table. Every command is a few lines: it reads its arguments and calls the system."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
except ImportError:
    sys.exit("the losspool command needs more than the loss: pip install 'losspool[train]'")

from rich.console import Console

from losspool.cli import lab as lab_commands
from losspool.cli import trained as commands
from losspool.segmentation.base import UserError, hard_exit, out_of_memory, plain, say

app = typer.Typer(
    help="Train segmentation networks with loss max-pooling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data = typer.Typer(help="Check and prepare datasets.", no_args_is_help=True)
prepare = typer.Typer(help="Turn downloads into datasets.", no_args_is_help=True)
app.add_typer(data, name="data")
data.add_typer(prepare, name="prepare")
lab = typer.Typer(
    help="Experiments: grids of runs, tables, figures, a report.",
    no_args_is_help=True,
    callback=lab_commands.needs_the_lab,
)
app.add_typer(lab, name="lab")
lab.command("run")(lab_commands.run)
lab.command("table")(lab_commands.table)
lab.command("figures")(lab_commands.figures)
lab.command("report")(lab_commands.report)


@app.callback()
def _losspool() -> None:
    """Commands below this one have names of their own, even while there is only one."""


@app.command("train")
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, or the config.yaml of a run.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Such as method=lmp loss.p=1.5 train.steps=500.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; runs/<recipe>-<method>-<seed> without it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run stopped, or start it.")] = False,
) -> None:
    """Train a network."""
    from losspool.segmentation.base import Interrupted
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
            start = ["torchrun", "…", "-m", "losspool"] if several else ["losspool"]  # torchrun's options are not ours
            words = [shlex.quote(str(word)) for word in (recipe, *(overrides or []), "--out", folder, "--resume")]
            again = " ".join([*start, "train", *words])
            told = f"stopped at step {trainer.state.step}; go on with: {again}"
            say(told)
        raise typer.Exit(128 + stopped.signal) from None
    if trainer.main:
        say(f"finished: {folder}")


app.command("evaluate")(commands.evaluate)
app.command("predict")(commands.predict)
app.command("export")(commands.export)


@data.command("check")
def data_check(
    name: Annotated[str, typer.Argument(help="cityscapes, voc, camvid, folder or streets.")],
    root: Annotated[Path | None, typer.Argument(help="The folder of the data; streets needs none.")] = None,
    split: Annotated[str | None, typer.Option(help="Only this split; all that there are without it.")] = None,
) -> None:
    """Read every file of a dataset, list what is wrong, and show what the labels hold."""
    from losspool.segmentation.data import check_dataset, class_table, open_dataset, splits_of

    output, faulty = Console(highlight=False, emoji=False), False

    def tell(text: str) -> None:
        output.print(plain(text), markup=False, soft_wrap=True)

    for each in [split] if split else splits_of(name, root):
        try:
            dataset = open_dataset(name, root, each)
        except UserError as error:
            if split:
                raise
            tell(f"fault: {error}")  # one split that cannot be opened must not hide the others
            faulty = True
            continue
        findings = check_dataset(dataset)
        if findings.labelled and findings.sound:
            output.print(class_table(findings, output.width))
        for fault in findings.faults:
            tell(f"fault: {fault}")
        summary = f"{dataset.name}: images {len(dataset)}, faults {len(findings.faults)}"
        tell(summary + ("" if findings.labelled else ", no labels"))
        output.print()
        faulty |= bool(findings.faults)
    raise typer.Exit(1 if faulty else 0)


@prepare.command("voc")
def data_prepare_voc(
    voc: Annotated[Path, typer.Argument(help="The folder of VOC 2012, or the one that holds VOCdevkit.")],
    sbd: Annotated[Path, typer.Option(help="The folder of SBD (benchmark_RELEASE).")],
) -> None:
    """Build VOC's augmented training set: SegmentationClassAug and the list trainaug.txt."""
    from losspool.segmentation.data import EXPECTED, prepare_voc

    done = prepare_voc(voc, sbd)
    print(plain(f"{done.list_file}: {done.images} images, {done.from_sbd} of them with labels of SBD"))
    if done.images != EXPECTED:
        print(f"The complete set has {EXPECTED} images: something is missing in what was given.")


def main() -> None:
    """The entry point: a user's mistake ends in one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? where it lacks a letter
    with hard_exit():
        try:
            app(prog_name="losspool")
        except UserError as error:
            say(f"error: {error}")
            sys.exit(2)
        except OSError as error:  # a name too long, a disk that is full or gone
            say(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error.strerror or error}")
            sys.exit(2)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            say(f"error: not enough memory; a smaller train.batch or data.crop needs less ({str(error).strip()[:200]})")
            sys.exit(2)


if __name__ == "__main__":
    main()

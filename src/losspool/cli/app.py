"""The command table, and how errors become messages and exit codes."""

from __future__ import annotations

import io
import sys

import typer

from losspool.cli import commands, greeting, lab
from losspool.segmentation.base import Interrupted, UserError, hard_exit, out_of_memory, say


def _group(help: str, **options: object) -> typer.Typer:
    return typer.Typer(help=help, no_args_is_help=True, add_completion=False, **options)  # type: ignore[arg-type]


def _greet(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        greeting.greet()


app = typer.Typer(
    help="Train segmentation networks with loss max-pooling.",
    callback=_greet,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(lab.demo)
app.command("train")(commands.train)
app.command("evaluate")(commands.evaluate)
app.command("predict")(commands.predict)
app.command("export")(commands.export)
app.command("plan")(commands.plan)
app.command("config")(commands.config)
app.command("doctor")(greeting.doctor)

recipes_app = typer.Typer(add_completion=False, invoke_without_command=True, callback=commands.recipes)
recipes_app.command("show")(commands.show_recipe)
app.add_typer(recipes_app, name="recipes")

data_app = _group("Import, check and prepare datasets.")
data_app.command("check")(commands.check)
data_app.command("import")(commands.import_data)
prepare_app = _group("Turn downloads into datasets.")
prepare_app.callback()(lambda: None)  # without a callback, Typer would turn a group of one command into that command
prepare_app.command("voc")(commands.prepare_voc)
data_app.add_typer(prepare_app, name="prepare")
app.add_typer(data_app, name="data")

lab_app = _group("Experiments: grids of runs, tables, figures, a report.", callback=lab.needs_the_lab)
for name in ("run", "table", "figures", "report"):
    lab_app.command(name)(getattr(lab, name))
app.add_typer(lab_app, name="lab")


def main() -> None:
    """The entry point. A user's mistake prints one sentence and exits with code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # print ? for characters that the terminal cannot encode
    with hard_exit():
        try:
            app(prog_name="losspool")
        except Interrupted as stopped:
            sys.exit(128 + stopped.signal)
        except UserError as error:
            say(f"error: {error}")
            sys.exit(2)
        except OSError as error:  # for example, a name that is too long, or a disk that is full or gone
            say(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error.strerror or error}")
            sys.exit(2)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            say(f"error: not enough memory; reduce train.batch or data.crop ({str(error).strip()[:200]})")
            sys.exit(2)

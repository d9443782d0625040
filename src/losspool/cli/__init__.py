"""The ``losspool`` command."""

try:
    import typer  # noqa: F401
except ImportError:
    from losspool.cli.greeting import main_without_extras as main
else:
    from losspool.cli.app import main

__all__ = ["main"]

"""The ``losspool`` command."""

from losspool.cli.app import main

__all__ = ["main"]

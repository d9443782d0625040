"""Run the ``losspool`` command with ``python -m losspool``, for example under torchrun."""

from losspool.cli import main

main()

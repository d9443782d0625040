"""``python -m losspool`` is the ``losspool`` command, for torchrun too."""

from losspool.cli import main

main()

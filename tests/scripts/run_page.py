"""Runs pages of docs/integrations whose frameworks ``make test-integrations`` does not install, where they are.

``PYTHONPATH=src:tests python tests/scripts/run_page.py nnunet keras`` prints a row of docs/integrations/README.md for
each, and fails if a loss is not what it must be.
"""

import sys
from importlib.metadata import version

from integration_pages import check_page
from other_packages import import_torchvision

PACKAGES = {"nnunet": "nnunetv2"}

import_torchvision()
for page in sys.argv[1:]:
    found = (", ".join(f"{loss:.5f}" for loss in losses) for losses in check_page(page))
    print(f"| {page} {version(PACKAGES.get(page, page))} | {' | '.join(found)} |")

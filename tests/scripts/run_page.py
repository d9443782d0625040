"""Runs pages of docs/integrations whose frameworks ``make test-integrations`` does not install, where they are.

PYTHONPATH=src:tests python tests/scripts/run_page.py nnunet keras
"""

import sys

from integration_pages import check_page
from other_packages import import_torchvision

import_torchvision()
for page in sys.argv[1:]:
    check_page(page)
    print(f"{page}: the framework's own loss at p = ∞, a larger one by default")

import pytest

from browser import browser


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running

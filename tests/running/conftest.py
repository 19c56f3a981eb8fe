"""Requirements of tests on several devices."""

import pytest

from gnnplace.errors import InvalidTopology
from gnnplace.running.devices import parse_device


@pytest.fixture
def needs_two_cores() -> None:
    """Skips where there is no `cpu:1`."""
    try:
        parse_device("cpu:1")
    except InvalidTopology:
        pytest.skip("the machine has no second core")

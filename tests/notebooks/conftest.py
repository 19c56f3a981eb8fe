"""The run record that charts and reports are tested with."""

import pytest

from gnnplace.run_record import RunRecord
from tests.example_run import example_run


@pytest.fixture
def run() -> RunRecord:
    return example_run()

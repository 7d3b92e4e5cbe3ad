"""What all tests share: reproducible property tests, and one reason for skipping where real data is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from paper_lib.data.stream import Stream, make_stream
from paper_lib.data.vision import FOLDER_VARIABLE

# A property test draws the same examples on every run, and no test asserts a time.
settings.register_profile("paper_lib", deadline=None, derandomize=True)
settings.load_profile("paper_lib")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of real data where no folder of it is named."""
    named = os.environ.get(FOLDER_VARIABLE)
    if item.get_closest_marker("real_data") and not (named and Path(named).is_dir()):
        pytest.skip(f"no real data: {FOLDER_VARIABLE} does not name the folder of the publishers' files")


@pytest.fixture(scope="session")
def streams() -> dict[str, Stream]:
    """Digits with pixels in [0, 1] in every scenario, by the scenario's first word."""
    return {s: make_stream("split_digits", f"{s}_incremental", scaling="unit") for s in ("task", "domain", "class")}

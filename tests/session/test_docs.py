"""Every block of README and of the page "Towline and Spark" runs in the checkout and prints what the page says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.reading import MAKE, Checkout, cleared, read
from tests.processes.nodes import processes_of
from tests.spark.pages import PAGE, README, STORES, blocks, blocks_of_readme


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with cleared(tmp_path):
        yield tmp_path


@pytest.mark.timeout(600)
def test_every_block_about_spark_runs_and_prints_what_the_page_says(spark, directory):
    read(Checkout(directory), PAGE, blocks(PAGE.read_text(encoding="utf-8")), STORES[PAGE])


@pytest.mark.timeout(600)
def test_every_block_of_readme_runs(spark, directory):
    """What the demo prints is compared where it runs."""
    found = blocks_of_readme()
    assert [block.code for block in found if block.code.startswith(MAKE)] == ["make demo\n"]
    read(Checkout(directory), README, found, STORES[README])
    assert not processes_of(directory), "README stops what it starts"

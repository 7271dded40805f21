"""One Spark session, and one node that it writes to, for all tests of this directory."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.processes.nodes import TestNode, ending, free_port
from tests.spark.class_archive import MAKE, Making
from tests.spark.sessions import small_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    yield from small_session(Making() if os.environ.get(MAKE) else None)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    """Every test has topics of its own."""
    root = tmp_path_factory.mktemp("written") / "master"
    made = TestNode("master", root, ha_listen_port=free_port(), default_topic_queue_nums=4)
    with ending(made):
        made.start()
        yield made
        made.stop()

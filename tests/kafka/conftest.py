"""Kafka itself: its jars from Maven, which a test is skipped without."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from peers.jars import JavaMissing, class_path
from peers.java_peer import POM as PEERS
from tests.requirements import need

HERE: Final = Path(__file__).parent / "java"
OLD: Final = Path(__file__).parent / "java_old"
_VERSION: Final = "{*}properties/{*}kafka.version"


@pytest.fixture(scope="session")
def classes(request: pytest.FixtureRequest) -> str:
    """The class path of Kafka's tools and of the programs of this folder, in the version that peers measure."""
    version = ET.parse(PEERS).findtext(_VERSION)
    return _classes(request, HERE, [f"-Dkafka.version={version}"])


@pytest.fixture(scope="session")
def old_classes(request: pytest.FixtureRequest) -> Callable[[str, str], str]:
    """The class path of OldBroker and of a broker of that version, made for that version of Scala."""
    return lambda version, scala: _classes(request, OLD, [f"-Dkafka.version={version}", f"-Dscala.version={scala}"])


def _classes(request: pytest.FixtureRequest, folder: Path, choices: list[str]) -> str:
    try:
        return class_path(
            folder / "pom.xml", choices, sorted(folder.glob("*.java")), request.config.cache.mkdir("kafka")
        )
    except JavaMissing as error:
        need({error.name: str(error)})
        raise

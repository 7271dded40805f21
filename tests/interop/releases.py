"""Releases of Apache RocketMQ: their jars, and this folder's Java programs compiled against them.

Jars come from Maven's repositories into its local one; what is compiled goes to a directory outside the sources.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from peers.jars import class_path

HERE: Final = Path(__file__).parent
POM: Final = HERE / "pom.xml"


@dataclass(frozen=True)
class Release:
    """`module` is the artifact that is asked for with all it needs; `line` names the folder of its adapter."""

    version: str
    module: str
    line: str

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))

    @property
    def knows_v2(self) -> bool:
        return self.number >= (5, 1, 0)

    def __str__(self) -> str:
        return self.version


OLD: Final = Release("4.9.8", "rocketmq-store", "v4")
NEW: Final = Release("5.5.0", "rocketmq-broker", "v5")
RELEASES: Final = (OLD, NEW)
# The repositories hold no broker of 4.9.8.
BROKERS: Final = (Release("4.9.7", "rocketmq-broker", "v4"), NEW)
# As parameters of a test: the older one in `make soak` alone.
NEWEST_RELEASE, NEWEST_BROKER = ((pytest.param(old, marks=pytest.mark.slow), new) for old, new in (RELEASES, BROKERS))


@dataclass(frozen=True)
class Programs:
    """A class path with this folder's programs and everything they need."""

    release: Release
    classpath: str


def programs(release: Release, cache: Path) -> Programs:
    """Compiled once for each state of the sources. Raises JavaMissing."""
    sources = sorted([*(HERE / "java" / "common").glob("*.java"), *(HERE / "java" / release.line).glob("*.java")])
    if release.module == "rocketmq-store":
        sources = [source for source in sources if "Broker" not in source.name]
    choices = [f"-Drocketmq.module={release.module}", f"-Drocketmq.version={release.version}"]
    return Programs(release, class_path(POM, choices, sources, cache))

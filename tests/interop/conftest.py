"""One Java program for each release, kept for the whole session: a start of a JVM costs seconds."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peers.jars import JavaMissing
from tests.requirements import need

from .jvm import STORE, Jvm, RealStore
from .releases import RELEASES, Programs, Release, programs
from .towlines import REAL_SETTINGS, TowlineStore

Compiled = Callable[[Release], Programs]
Started = Callable[..., Jvm]


@pytest.fixture(scope="session")
def compiled(request: pytest.FixtureRequest) -> Compiled:
    """The programs of a release; skips or fails where they cannot be had."""
    cache = request.config.cache.mkdir("interop")
    known: dict[Release, Programs | JavaMissing] = {}  # asking again takes as long again

    def get(release: Release) -> Programs:
        if release not in known:
            try:
                known[release] = programs(release, cache)
            except JavaMissing as error:
                known[release] = error
        found = known[release]
        if isinstance(found, JavaMissing):
            need({found.name: str(found)})
            raise found
        return found

    return get


@pytest.fixture(scope="session")
def start_jvm(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Starts a program of its own, for a test that kills it."""
    started: list[Jvm] = []

    def start(release: Release, commands: str = STORE) -> Jvm:
        started.append(Jvm(compiled(release), tmp_path_factory.mktemp(f"jvm-{release}-"), commands))
        return started[-1]

    yield start
    for jvm in started:
        jvm.close()


@pytest.fixture(scope="session")
def jvms(start_jvm: Started) -> Started:
    """The shared program of a release."""
    kept: dict[str, Jvm] = {}

    def get(release: Release) -> Jvm:
        if release.version not in kept:
            kept[release.version] = start_jvm(release)
        return kept[release.version]

    return get


@pytest.fixture(params=RELEASES, ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    return request.param


@pytest.fixture
def real(release: Release, jvms: Started, tmp_path: Path) -> RealStore:
    """The real store on the directory that `towline` has, too."""
    return RealStore(jvms(release), tmp_path / "store", **REAL_SETTINGS)


@pytest.fixture
def towline(tmp_path: Path) -> Iterator[TowlineStore]:
    store = TowlineStore(tmp_path / "store")
    yield store
    store.end()

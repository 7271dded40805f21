"""A bucket of a real S3 server for a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from towline.pipeline.objects import file_system

from . import s3


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    with s3.server(request.config.cache.mkdir("go"), tmp_path_factory.mktemp("s3")) as made:
        yield made


@pytest.fixture
def bucket(server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory behind a bucket of this test; the environment has what a client needs."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    file_system.cache_clear()
    made = server.root / f"b{abs(hash(tmp_path)) % 10**9}"
    made.mkdir()
    return made


@pytest.fixture
def out(bucket: Path) -> str:
    return f"s3://{bucket.name}/deep/archive"

"""A session of jobs on a server of Spark Connect: no JVM here, the package is sent along as an artifact."""

import logging
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from .errors import SparkNotStarted
from .ship import ship

PORT: Final = 15002  # Spark's default
REACHED_S: Final = 5.0  # its client would try again for minutes where nobody listens


@contextmanager
def connected(url: str, name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of its own on the server, which ends with it. Raises SparkNotStarted."""
    _check_reached(url)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it logs what it also raises
    try:
        spark = SparkSession.builder.remote(url).appName(name).config(map=dict(settings)).create()
    except (PySparkException, ValueError) as error:
        raise SparkNotStarted(url, str(error).partition("\n")[0], "") from error
    try:
        with tempfile.TemporaryDirectory(prefix="towline-ship-") as directory:
            spark.addArtifacts(str(ship(Path(directory) / "towline.zip")), pyfile=True)
        yield spark
    finally:
        spark.stop()


def _check_reached(url: str) -> None:
    place = urlsplit(url)
    try:
        socket.create_connection((place.hostname or "", place.port or PORT), REACHED_S).close()
    except OSError as error:
        raise SparkNotStarted(url, f"nobody answers there: {error.strerror or error}", "") from None

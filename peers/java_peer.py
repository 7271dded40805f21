"""Versions, clients and servers of the systems that are Java programs."""

import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Final

from .jars import class_path

HERE: Final = Path(__file__).parent / "java"
POM: Final = HERE / "pom.xml"
CACHE: Final = Path(__file__).parent / "__pycache__" / "java"
COMMON: Final = ("Client", "Peer", "Times", "Work", "Works")
CLIENT_HEAP: Final = "1g"
_SPACE: Final = "{http://maven.apache.org/POM/4.0.0}"


@cache
def classes(system: str) -> str:
    """The class path of a system's server and client. Fetches and compiles at first use; raises JavaMissing."""
    sources = [HERE / f"{name}.java" for name in (*COMMON, _peer(system))]
    return class_path(POM, ["-P", system], sources, CACHE)


@cache
def release(system: str, version: str) -> str:
    """The class path of another release of a system's server, without our programs. Raises JavaMissing."""
    return class_path(POM, ["-P", system, f"-D{system}.version={version}"], [], CACHE)


def version(system: str) -> str:
    """That of the pom. Raises JavaMissing where it is not to be had."""
    classes(system)
    found = ET.parse(POM).findtext(f"{_SPACE}properties/{_SPACE}{system}.version")
    assert found is not None
    return found


def program(system: str, heap: str, *words: str, version: str = "") -> list[str]:
    """A Java program of the system: its flags, its class, its arguments. The heap is whole from the start.

    Of another release than the pom's with a `version`.
    """
    jars = release(system, version) if version else classes(system)
    return ["java", f"-Xms{heap}", f"-Xmx{heap}", "-cp", jars, *words]


def client(system: str) -> list[str]:
    quiet = f"-Drmq.logback.configurationFile={HERE / 'logback.xml'}"
    soon = "-Drocketmq.client.rebalance.waitInterval=1000"  # a push consumer that met nobody looks again
    return program(system, CLIENT_HEAP, quiet, soon, "towline.peers.Client", _peer(system))


def _peer(system: str) -> str:
    return f"{system.capitalize()}Peer"

"""Releases of Apache RocketMQ: their jars, and this folder's Java programs compiled against them.

Jars come from Maven's repositories into its local one; what is compiled goes to a directory outside the sources.
"""

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
POM: Final = HERE / "pom.xml"
MAVEN_S: Final = 600.0  # the first run fetches 100 MB
JAVAC_S: Final = 120.0
ADVICE: Final = "install a JDK (11 or later) and Maven to run it"


class Unavailable(Exception):
    """A tool or the jars are not to be had; `name` is java or maven."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name, self.reason = name, reason


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


@dataclass(frozen=True)
class Programs:
    """A class path with this folder's programs and everything they need."""

    release: Release
    classpath: str


def programs(release: Release, cache: Path) -> Programs:
    """Compiled once for each state of the sources. Raises Unavailable."""
    for tool, name in (("java", "java"), ("javac", "java"), ("mvn", "maven")):
        if shutil.which(tool) is None:
            raise Unavailable(name, f"{tool} is not installed: {ADVICE}")
    sources = sorted([*(HERE / "java" / "common").glob("*.java"), *(HERE / "java" / release.line).glob("*.java")])
    if release.module == "rocketmq-store":
        sources = [source for source in sources if "Broker" not in source.name]
    jars = _jars(release, cache)
    classes = cache / f"{release.module}-{release.version}-{_digest(*sources)}"
    if not classes.is_dir():
        fresh = cache / f"{classes.name}-fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        _run(["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(fresh), "-cp", jars, *map(str, sources)], JAVAC_S)
        fresh.rename(classes)
    return Programs(release, f"{classes}:{jars}")


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def _jars(release: Release, cache: Path) -> str:
    """The jars, joined by colons: without the network when Maven holds them already."""
    kept = cache / f"{release.module}-{release.version}-{_digest(POM)}.jars"
    if kept.is_file() and all(Path(jar).is_file() for jar in kept.read_text().split(":")):
        return kept.read_text()
    command = ["mvn", "-B", "-q", "-f", str(POM), "dependency:build-classpath", f"-Dmdep.outputFile={kept}"]
    command += [f"-Drocketmq.module={release.module}", f"-Drocketmq.version={release.version}"]
    try:
        _run([*command, "-o"], MAVEN_S)
    except subprocess.CalledProcessError:
        try:
            _run(command, MAVEN_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            reason = f"Maven cannot get {release.module} {release.version}"
            raise Unavailable("maven", reason) from error
    return kept.read_text()


def _run(command: list[str], deadline_s: float) -> None:
    try:
        subprocess.run(command, check=True, timeout=deadline_s, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        error.add_note(f"{error.stdout}{error.stderr}")
        raise

"""Java programs: jars from Maven's repositories, by a pom; our own sources compiled beside them.

Jars lie in Maven's local repository, what is compiled in a directory outside the sources. Both are made at first use.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .server import Missing

MAVEN_S: Final = 600.0  # the first run fetches 100 MB
JAVAC_S: Final = 120.0
ADVICE: Final = "install a JDK (17 or later) and Maven to run it"
TOOLS: Final = {"java": "java", "javac": "java", "mvn": "maven"}


class JavaMissing(Missing):
    """A tool or the jars are not to be had; `name` is java or maven."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def class_path(pom: Path, choices: Sequence[str], sources: Sequence[Path], cache: Path) -> str:
    """Of the compiled sources and of all that the pom names; `choices` are Maven's flags that choose among that.

    Raises JavaMissing.
    """
    for tool, name in TOOLS.items():
        if shutil.which(tool) is None:
            raise JavaMissing(name, f"{tool} is not installed: {ADVICE}")
    cache.mkdir(parents=True, exist_ok=True)
    jars = _jars(pom, choices, cache)
    return f"{_compiled(sources, jars, cache)}:{jars}"


def _jars(pom: Path, choices: Sequence[str], cache: Path) -> str:
    """The jars, joined by colons: without the network when Maven holds them already."""
    kept = cache / f"{_digest(pom.read_bytes(), *map(str.encode, choices))}.jars"
    if kept.is_file() and all(Path(jar).is_file() for jar in kept.read_text().split(":")):
        return kept.read_text()
    fresh = kept.with_suffix(f".{os.getpid()}")
    command = ["mvn", "-B", "-q", "-f", str(pom), *choices, "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
    try:
        _run([*command, "-o"], MAVEN_S)
    except subprocess.CalledProcessError:
        try:
            _run(command, MAVEN_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise JavaMissing("maven", f"Maven cannot get what {pom} ({' '.join(choices)}) names") from error
    fresh.replace(kept)
    return kept.read_text()


def _compiled(sources: Sequence[Path], jars: str, cache: Path) -> Path:
    """Once for each state of the sources and each set of jars."""
    classes = cache / _digest(jars.encode(), *(source.read_bytes() for source in sources))
    if not classes.is_dir():
        fresh = classes.with_suffix(f".{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        if sources:
            _run(["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(fresh), "-cp", jars, *map(str, sources)], JAVAC_S)
        try:
            fresh.rename(classes)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return classes


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _run(command: list[str], deadline_s: float) -> None:
    try:
        subprocess.run(command, check=True, timeout=deadline_s, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        error.add_note(f"{error.stdout}{error.stderr}")
        raise

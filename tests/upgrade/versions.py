"""Versions of Towline beside the present one: their trees, out of git, and what is run in them."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from tests.requirements import need
from towline.link.free_port import free_port
from towline.loadtest.drill.nodes import DrillNode

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PROGRAM: Final = HERE / "program.py"
STORES: Final = HERE / "stores"
COMPILE_S: Final = 1200.0
RUN_S: Final = 240.0
COMMAND: Final = "import sys; from towline.start import main; sys.exit(main())"
PROBE: Final = "import towline, towline.master; print(towline.__file__); print(towline.master.__file__)"
SETTINGS: Final[dict[str, Any]] = {  # of the nodes here; every version knows them
    "mapped_file_size_commit_log": 256 << 10,
    "mapped_file_size_consume_queue": 20 * 1000,
    "max_hash_slot_num": 2000,
    "max_index_num": 8000,
    "flush_disk_type": "SYNC_FLUSH",
    "ha_listen_port": 0,
    "enable_property_filter": True,
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
    "flush_consumer_offset_interval": 100,
    "timer_max_delay_sec": 3650 * 86_400,
}


@dataclass(frozen=True)
class Version:
    """`root` is a tree of the repository. What is run in it imports its modules and nobody else's."""

    name: str
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        known = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "NUMBA_"))}
        return known | {"PYTHONPATH": str(self.root), "PYTHONSAFEPATH": "1"}

    def towline(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """The command, as it is typed."""
        return self._run([sys.executable, "-c", COMMAND, *words], check=False)

    def works(self, *words: str) -> str:
        """What the command prints. Its exit status is 0."""
        done = self.towline(*words)
        assert done.returncode == 0, f"{self.name}: towline {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def program(self, *words: str) -> Any:
        """What `program.py` says, by this version's client."""
        done = self._run([sys.executable, str(PROGRAM), *words], check=False)
        assert done.returncode == 0, f"{self.name}: {' '.join(words[:1])}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def node(self, store: Path, port: int, **settings: object) -> DrillNode:
        """A master of this version, with a port for clients."""
        flags = [word for key, value in (SETTINGS | settings).items() for word in ("--set", f"{key}={value}")]
        flags += ["--set", f"listen_port={port}"]
        return DrillNode(0, store, "master", flags, environment=self.environment)

    @contextmanager
    def serving(self, store: Path, **settings: object) -> Iterator[str]:
        """While a master of this version runs on a store: its endpoint. It is stopped in order, its store is clean."""
        port = free_port()
        node = self.node(store, port, **settings)
        try:
            node.start()
            yield f"tcp://127.0.0.1:{port}"
            assert node.stop(), f"{self.name}: the store is not clean"
        finally:
            node.end()

    def check(self) -> None:
        """Python imports this tree, by links too, and whatever the present directory."""
        said = self._run([sys.executable, "-c", PROBE], check=True).stdout.split()
        assert all(Path(line).resolve().is_relative_to(self.root.resolve()) for line in said), said

    def compile(self) -> None:
        """Kernels, and modules too: each command that is typed would compile hundreds of them."""
        for words in (["towline.kernels"], ["compileall", "-q", "-x", "/tests/", str(self.root)]):
            subprocess.run(
                [sys.executable, "-m", *words],
                env=self.environment,
                cwd=self.root,
                check=True,
                timeout=COMPILE_S,
                capture_output=True,
            )

    def _run(self, command: list[str], *, check: bool) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, env=self.environment, cwd="/", check=check, timeout=RUN_S, capture_output=True, text=True
        )


PRESENT: Final = Version("present", ROOT)


def older(cache: Path) -> Version:
    """The version before this one, in a tree of its own below `cache`, compiled. Where the checkout has no history that
    holds it, or the packages that are installed are none of those it asks for, the test ends."""
    name, commit = _named()
    tree = cache / commit[:16]
    if not tree.exists():
        fresh = cache / f"{commit[:16]}.{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        packed = _git("archive", "--format=tar", commit)
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(fresh, filter="tar")
        version = Version(name, fresh)
        _need_packages(version)
        version.check()
        version.compile()
        fresh.replace(tree)
    return Version(name, tree)


def _named() -> tuple[str, str]:
    """Name and commit of the version before: that of the newest tag below the present commit, else the newest listed
    one that is in the history here."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        need({"git": "no checkout of git, so no older version"})
    tags = _git("tag", "--merged", "HEAD~1", "--sort=-version:refname", "v*").decode().split()
    if tags:
        return tags[0].removeprefix("v"), _git("rev-parse", f"{tags[0]}^{{commit}}").decode().strip()
    for row in listed():
        if _has(row["commit"]):
            return row["name"], row["commit"]
    need({"git": f"the history here has none of {', '.join(row['commit'][:8] for row in listed())}: it is not whole"})
    raise AssertionError("need ends the test")


def listed() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = tomllib.loads((HERE / "versions.toml").read_text(encoding="utf-8"))["version"]
    return rows


def _has(commit: str) -> bool:
    done = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, check=False, capture_output=True)
    return done.returncode == 0


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def _need_packages(version: Version) -> None:
    """What its client and its server ask for is installed here, in versions that fit."""
    asked = tomllib.loads((version.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*asked["dependencies"], *asked["optional-dependencies"]["cli"], *asked["optional-dependencies"]["server"]]
    missing = [text for text in wanted if not text.startswith("towline[") and not _fits(Requirement(text))]
    if missing:
        need({"older packages": f"{version.name} asks for {', '.join(missing)}, which is not what is installed"})


def _fits(wanted: Requirement) -> bool:
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    try:
        return wanted.specifier.contains(installed(wanted.name), prereleases=True)
    except PackageNotFoundError:
        return False

"""Stores that older versions wrote, and what those read of them: `stores/NAME.tar.xz`.

    python -m tests.upgrade.kept_stores    # makes that of the version before, at a release

A store is small, and stopped in order. Beside it in the archive stands `read.json`: what readers of that version saw.
"""

import json
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from .versions import ROOT, STORES, Version, older

STORE: Final = "store"
READ: Final = "read.json"
OPEN: Final = 1  # transactions


@dataclass(frozen=True)
class Kept:
    """`facts`: what `fill` printed; `seen`: what `read` printed, `later` what was delivered by then."""

    store: Path
    facts: dict[str, Any]
    seen: dict[str, Any]


def names() -> list[str]:
    return sorted(path.name.removesuffix(".tar.xz") for path in STORES.glob("*.tar.xz"))


def unpack(name: str, directory: Path) -> Kept:
    """Its files are as old as this moment: a node would delete what is older than it keeps."""
    now = time.time()
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        for member in archive.getmembers():
            member.mtime = now
            archive.extract(member, directory, filter="data")
    said = json.loads((directory / READ).read_text())
    return Kept(directory / STORE, said["facts"], said["seen"])


def write_by(version: Version, store: Path) -> dict[str, Any]:
    with version.serving(store) as endpoint:
        facts = version.program("fill", endpoint, "kept")
        seen = version.program("read", endpoint, str(OPEN))
    return {"facts": facts, "seen": seen}


def main() -> None:
    version = older(ROOT / ".pytest_cache/d/upgrade")  # where tests have it
    with TemporaryDirectory() as place:
        store = Path(place) / STORE
        (Path(place) / READ).write_text(json.dumps(write_by(version, store)))
        target = STORES / f"{version.name}.tar.xz"
        with tarfile.open(target, "w:xz") as archive:
            for name in (STORE, READ):
                archive.add(Path(place) / name, name, filter=_anonymous)
    sys.stdout.write(f"{target}: {target.stat().st_size:,} bytes\n")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member if member.isfile() or member.isdir() else None


if __name__ == "__main__":
    main()

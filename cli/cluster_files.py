"""Does the work of `towline cluster init` and `units`: writes the cluster file and the units."""

import shutil
import sys
from pathlib import Path

from towline.cluster.sample import is_free, sample
from towline.cluster.units import Target, files_of
from towline.log.files.store_files import write_atomically
from towline.route.errors import ChangeRefused
from towline.route.file import parse_cluster

from .cluster_nodes import whole_cluster
from .output import show


def init(file: Path, groups: int, slaves: int, name: str, as_json: bool) -> None:
    if file.exists():
        raise ChangeRefused(f"write {file}", "it is there already", "name another file, or remove it first")
    text = sample(groups, slaves, name, is_free)
    cluster = parse_cluster(text, file)
    write_atomically(file.absolute(), text.encode())
    nodes = [node.label for node in cluster.nodes]
    document = {"file": str(file.absolute()), "cluster": cluster.name, "nodes": nodes}
    said = f"{file} describes {', '.join(nodes)}; `towline cluster up -f {file}` starts them"
    show(document, as_json, lambda console: console.print(said, markup=False))


def units(file: Path, out: Path, etc: Path, command: Path | None, user: str, image: str, as_json: bool) -> None:
    cluster = whole_cluster(file)
    written = []
    for name, text in files_of(cluster, Target(etc, command or own_command(), user, image)).items():
        path = out.absolute() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
        written.append(str(path))
    said = f"{len(written)} files below {out}; docs/operations.md says where they go"
    show(
        {"cluster": cluster.name, "out": str(out.absolute()), "files": written},
        as_json,
        lambda console: console.print(said, markup=False),
    )


def own_command() -> Path:
    """The `towline` beside this Python, else the one on the path."""
    beside = Path(sys.executable).with_name("towline")
    return beside if beside.exists() else Path(shutil.which("towline") or beside)

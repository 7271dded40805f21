"""Changes a cluster file as text: comments and order stay as their author left them.

tomlkit does what rewriting the parsed file could not. What comes out is read again whole, so a change either gives a
good cluster file or is refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import AoT, Array, Table

from towline.route.file import parse_cluster
from towline.route.nodes import Cluster


def with_node(text: str, path: Path, group: str, keys: Mapping[str, Any]) -> tuple[str, Cluster]:
    """The file with one more node at the group's end. Raises BadCluster when it does not fit."""
    document = tomlkit.parse(text)
    nodes = _nodes(document, group)
    if isinstance(nodes, AoT):
        if not nodes[-1].as_string().endswith("\n\n"):
            nodes[-1].add(tomlkit.nl())  # at the end of the file
        nodes.append(_table(keys))
    else:
        inline = tomlkit.inline_table()
        inline.update(keys)
        nodes.append(inline)
    return _checked(document, path)


def without_node(text: str, path: Path, group: str, number: int) -> tuple[str, Cluster]:
    """The file without that node. Raises BadCluster when the rest does not stand."""
    document = tomlkit.parse(text)
    nodes = _nodes(document, group)
    del nodes[_place(nodes, number)]
    return _checked(document, path)


def with_changed_node(text: str, path: Path, group: str, number: int, keys: Mapping[str, Any]) -> tuple[str, Cluster]:
    """The file with other values of that node's `keys`."""
    document = tomlkit.parse(text)
    nodes = _nodes(document, group)
    nodes[_place(nodes, number)].update(keys)
    return _checked(document, path)


def with_master(text: str, path: Path, group: str, number: int) -> tuple[str, Cluster]:
    """The file with that node as the one that starts as master."""
    document = tomlkit.parse(text)
    _group(document, group)["master"] = number
    return _checked(document, path)


def _group(document: tomlkit.TOMLDocument, name: str) -> Any:
    return next(table for table in document["group"] if table["name"] == name)


def _nodes(document: tomlkit.TOMLDocument, group: str) -> AoT | Array:
    nodes = _group(document, group)["node"]
    assert isinstance(nodes, AoT | Array)
    return nodes


def _place(nodes: AoT | Array, number: int) -> int:
    return next(place for place, node in enumerate(nodes) if node["id"] == number)


def _table(keys: Mapping[str, Any]) -> Table:
    table = tomlkit.table()
    table.update(keys)
    table.add(tomlkit.nl())
    return table


def _checked(document: tomlkit.TOMLDocument, path: Path) -> tuple[str, Cluster]:
    text = tomlkit.dumps(document)
    return text, parse_cluster(text, path)

"""Whom a slave that was just started follows, or why nobody; one that can never be taken as it is does not go on."""

import time
from pathlib import Path
from typing import Any, Final

from towline.errors import LinkRefused
from towline.link.greeting import MAGIC_DIFFERS, VERSION_DIFFERS
from towline.node.peers.peer_server import SEGMENT_SIZE
from towline.node.roles.role_commands import read_json_file
from towline.node.roles.roles import SLAVE
from towline.node.supervise.launch import Launched
from towline.places import Store
from towline.runtime.positions import Duty

ANSWER_MAX_S: Final = 5.0  # a busy master may miss some greetings; one that is not there is no reason not to start
STEP_S: Final = 0.01
FOR_GOOD: Final = frozenset({SEGMENT_SIZE, "CLUSTER", MAGIC_DIFFERS, VERSION_DIFFERS})  # only another start heals it


def await_link(store: Path, launched: Launched, facts: dict[str, Any]) -> dict[str, Any] | None:
    """What came of the slave's way to its master: a link, a refusal, or nothing in time; None for a master.

    Raises LinkRefused, with the node stopped, where a master refuses it for what only another start can change.
    """
    if facts["role"] != SLAVE or Duty.RECEIVE.label not in facts["pieces"]:
        return None
    path, deadline = Store(store.resolve()).link, time.monotonic() + ANSWER_MAX_S
    while not _is_answer(link := read_json_file(path)) and time.monotonic() < deadline:
        time.sleep(STEP_S)
    if link is not None and link["refused"] and link["refused"][0] in FOR_GOOD:
        launched.end()
        raise LinkRefused(*link["refused"])
    return link


def _is_answer(link: dict[str, Any] | None) -> bool:
    return link is not None and bool(link["connected"] or link["refused"])


def following(link: dict[str, Any]) -> str:
    """For people."""
    return f"follows the master at {link['address']}" if link["connected"] else f"follows nobody: {link['why']}"

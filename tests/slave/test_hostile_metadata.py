"""What a master says of its metadata files is looked at before it is believed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from towline.errors import MalformedFile, MalformedFrame
from towline.format.wire.frames import ANSWER, Kind
from towline.slave.follow import FollowAgent

DEEP = "[" * 100_000


def agent_told(root: Path, files: object) -> FollowAgent:
    """A follower whose master answers with these files."""
    answers: list[list[bytes] | None] = [
        [ANSWER.pack(Kind.ANSWER, 0, 1, 0), json.dumps({"files": files}).encode()],
        None,
    ]
    agent = cast(Any, FollowAgent.__new__(FollowAgent))
    agent._link = SimpleNamespace(receive=lambda: answers.pop(0))
    agent._node = SimpleNamespace(store=SimpleNamespace(config=root))
    return cast(FollowAgent, agent)


@pytest.mark.parametrize(
    "files",
    [
        *([], None, 5, "x"),
        *({name: "{}"} for name in ("../x.json", "a/b.json", "\0.json", "n" * 300 + ".json", ".json", "x")),
        *({"topics.json": text} for text in ("{", "", DEEP)),
    ],
    ids=lambda files: ascii(files)[:16],
)
def test_anything_but_metadata_files_is_refused_by_name(tmp_path: Path, files: object) -> None:
    with pytest.raises((MalformedFrame, MalformedFile)):
        agent_told(tmp_path, files)._receive_answers(0)
    assert not list(tmp_path.iterdir())

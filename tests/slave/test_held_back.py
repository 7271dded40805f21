"""What a master says is delivered counts on a slave when its own log holds as much."""

import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from towline.errors import DiskFull, MalformedFrame, StoreNotWritable, SyncFailed, TowlineError
from towline.format.wire.frames import ANSWER, Kind
from towline.log.files.config_file import ConfigFile
from towline.log.state.floors import LOG_END
from towline.slave.follow import FollowAgent

NAME = "delayOffset.json"


class Following:
    """A follower whose log is synced to `flushed`, and a master that answers and never asks for anything."""

    def __init__(self, root: Path) -> None:
        self.root, self.flushed = root, 0
        self.answers: list[list[bytes]] = []
        link = SimpleNamespace(
            receive=lambda: self.answers.pop(0) if self.answers else None,
            connect=lambda facts, agree: True,
            connected=True,
            lost=False,
            due=lambda now: True,
            send=lambda parts: False,
            disconnect=self._disconnect,
        )
        settings = SimpleNamespace(
            metadata_interval_ms=100, broker_cluster_name="c", broker_name="b", broker_id=1, peers={}
        )
        node: Any = SimpleNamespace(
            store=SimpleNamespace(config=root, root=root),
            positions=SimpleNamespace(get=lambda position: self.flushed),
            line=SimpleNamespace(count=lambda counter: None),
            settings=settings,
        )
        self.agent = FollowAgent(node)
        cast(Any, self.agent)._link = link
        self.link = link

    def _disconnect(self, why: str) -> None:
        self.link.connected = False
        self.why = why

    def says(self, end: object, offset: int) -> None:
        text = json.dumps({"offsetTable": {"1": offset}, LOG_END: end})
        self.answers.append([ANSWER.pack(Kind.ANSWER, 0, 1, 0), json.dumps({"files": {NAME: text}}).encode()])

    def cycle(self) -> None:
        cast(Any, self.agent)._follow(0)

    @property
    def offset(self) -> int | None:
        content = ConfigFile(self.root / NAME).load()
        return None if content is None else int(content["offsetTable"]["1"])

    @property
    def have(self) -> dict[str, int]:
        return dict(cast(Any, self.agent)._have)


@pytest.fixture
def following(tmp_path: Path) -> Following:
    return Following(tmp_path)


def test_it_is_kept_when_the_log_has_come_so_far(following: Following) -> None:
    following.says(1000, 5)
    following.cycle()
    assert following.offset is None
    assert NAME in following.have, "nor is it asked for again meanwhile"
    following.flushed = 999
    following.cycle()
    assert following.offset is None
    following.flushed = 1000
    following.cycle()
    assert following.offset == 5


def test_a_log_that_is_always_behind_the_newest_comes_to_the_oldest_and_then_to_the_newest(
    following: Following,
) -> None:
    for end, offset in ((1000, 5), (2000, 7), (3000, 9)):
        following.says(end, offset)
    following.cycle()
    assert following.offset is None
    for flushed, end, offset in ((1500, 4000, 5), (2500, 5000, 5), (3500, 6000, 9), (5500, 7000, 11)):
        following.flushed = flushed
        following.cycle()
        assert following.offset == offset
        following.says(end, 11)
        following.cycle()


def test_one_that_the_log_holds_already_takes_the_place_of_those_that_wait(following: Following) -> None:
    following.says(1000, 5)
    following.cycle()
    following.flushed = 1200
    following.says(1100, 6)
    following.cycle()
    assert following.offset == 6
    following.cycle()
    assert following.offset == 6


def test_what_a_lost_master_said_is_kept_only_while_the_log_holds_it(following: Following) -> None:
    following.says(1000, 5)
    following.cycle()
    following.link.connected = False
    following.cycle()  # it connects again
    assert NAME not in following.have, "so it is asked for"
    following.link.connected, following.flushed = True, 1000
    following.cycle()
    assert following.offset is None


@pytest.mark.parametrize("held_back", [False, True], ids=["at once", "when the log has come so far"])
@pytest.mark.parametrize(
    "error",
    [DiskFull("x", 5), StoreNotWritable("x", "Input/output error"), SyncFailed("x", 0, 5, 5, "Input/output error")],
)
def test_what_its_own_disk_refuses_is_asked_for_again(
    following: Following, monkeypatch: pytest.MonkeyPatch, error: TowlineError, held_back: bool
) -> None:
    """And the follower goes on: it is also who answers this node's peers."""

    def fail(*_: object) -> None:
        raise error

    following.says(1000 if held_back else 0, 5)
    if held_back:
        following.cycle()
    with monkeypatch.context() as broken:
        broken.setattr(ConfigFile, "save", fail)
        following.flushed = 1000
        following.cycle()
    assert NAME not in following.have
    assert (following.link.connected, following.why) == (False, str(error))
    following.cycle()
    following.link.connected = True
    following.says(1000, 7)
    following.cycle()
    assert following.offset == 7


def test_of_another_version_it_is_kept_at_once(following: Following) -> None:
    text = json.dumps({"offsetTable": {"1": 3}})
    following.answers.append([ANSWER.pack(Kind.ANSWER, 0, 1, 0), json.dumps({"files": {NAME: text}}).encode()])
    following.cycle()
    assert following.offset == 3
    assert following.have == {NAME: zlib.crc32(text.encode())}


@pytest.mark.parametrize("end", ["1000", True, 1.5, None])
def test_an_end_that_is_no_number_is_refused(following: Following, end: object) -> None:
    following.says(end, 5)
    with pytest.raises(MalformedFrame, match=NAME):
        cast(Any, following.agent)._receive_answers(0)

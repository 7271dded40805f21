"""The metadata that a slave of RocketMQ copies from its master, beside topics (21) and groups (201): files of `config/`
as RocketMQ has them (spec 1.4)."""

import json
import struct
from typing import Any, Final

from towline.errors import MalformedFile
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.log.files.config_file import ConfigFile
from towline.log.state.floors import DELAY_OFFSETS, GROUP_OFFSETS, TIMER_OFFSETS
from towline.node.process.context import Node

from .connections import Answer
from .requests import Handler, alone

MODES: Final = "messageRequestMode.json"
VERSION: Final = {"counter": 0, "stateVersion": 0, "timestamp": 0}
# Time up to which timers were delivered, two positions of its own files, how many timers of the queue that is about;
# and a version: state, time, counter.
_TIMERS: Final = struct.Struct(">7q")


class CopiedFiles:
    """Handles what a slave asks for, by the files as they were written last: offsets are some seconds old in them."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def handlers(self) -> dict[int, Handler]:
        """By request code; none on a node that no broker can follow."""
        if not self._node.settings.rocketmq_ha_port:
            return {}
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: alone(self._group_offsets),
            RequestCode.GET_ALL_DELAY_OFFSET: alone(self._delay_offsets),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: alone(self._modes),
            RequestCode.GET_TIMER_CHECK_POINT: alone(self._timers),
            RequestCode.GET_TIMER_METRICS: alone(self._timer_counts),
        }

    def _group_offsets(self, _: Command, answer: Answer) -> None:
        """GET_ALL_CONSUMER_OFFSET."""
        content = self._load(GROUP_OFFSETS)
        told = {name: content[name] for name in ("dataVersion", "groupTopicMap") if name in content}
        answer(ResponseCode.SUCCESS, body=_json(told | {"offsetTable": content.get("offsetTable", {})}))

    def _delay_offsets(self, _: Command, answer: Answer) -> None:
        """GET_ALL_DELAY_OFFSET: the slave writes it into a file of that name."""
        content = self._load(DELAY_OFFSETS)
        told = {"dataVersion": content.get("dataVersion", VERSION), "offsetTable": content.get("offsetTable", {})}
        answer(ResponseCode.SUCCESS, body=_json(told))

    def _modes(self, _: Command, answer: Answer) -> None:
        """GET_ALL_MESSAGE_REQUEST_MODE."""
        member = "messageRequestModeMap"
        answer(ResponseCode.SUCCESS, body=_json({member: self._load(MODES).get(member, {})}))

    def _timers(self, _: Command, answer: Answer) -> None:
        """GET_TIMER_CHECK_POINT: the slave keeps timers by itself, and leaves out those that were due before the time
        that is told, of as many of the queue as are told."""
        content = self._load(TIMER_OFFSETS)
        count = int(content.get("upTo", 0))
        until = int(content.get("deliveredDue", 0)) if count else self._node.clock.now_ms()
        answer(ResponseCode.SUCCESS, body=_TIMERS.pack(until, 0, 0, count, 0, 0, 0))

    def _timer_counts(self, _: Command, answer: Answer) -> None:
        """GET_TIMER_METRICS: counts of timers by topic, which are not kept here."""
        answer(ResponseCode.SUCCESS, body=_json({"dataVersion": VERSION, "timingCount": {}}))

    def _load(self, name: str) -> dict[str, Any]:
        """Raises RequestRefused."""
        try:
            return ConfigFile(self._node.store.config / name).load() or {}
        except MalformedFile as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, error.describe()) from None


def _json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

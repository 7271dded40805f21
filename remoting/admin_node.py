"""The node as RocketMQ's tools see a broker: what it does now, and how it is set."""

import os
from datetime import date
from enum import Enum
from typing import Any, Final

from towline.errors import MalformedRecord
from towline.format.record.record import decode
from towline.format.remoting.admin_bodies import runtime_info
from towline.format.remoting.codes import ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.properties_text import properties_text
from towline.format.wire.frames import Buffer
from towline.node.process.context import Node
from towline.node.report.statistics import Sample, take
from towline.runtime.positions import Position
from towline.runtime.settings_model import GROUPS, TowlineKeys, camel, facts_of
from towline.runtime.store_stats import BUCKETS_MS

from .connections import Answer
from .questions import Facts, Questions

VERSION_NAME: Final = "V5_3_3"  # the one whose number answers carry
RATE_MS: Final = 1_000  # rates are over so long at least
_POOLS: Final = ("send", "pull", "query", "litePull", "ack")
_NO_TIME: Final = -1
_GIB: Final = 1 << 30


class NodeAdmin:
    """Handles what tools ask about the node."""

    def __init__(self, node: Node, serve: Questions) -> None:
        self._node, self._serve = node, serve
        self._before = self._now = take(node)
        self._day = date.today()
        self._mornings = [(0, 0), (0, 0)]  # messages put and sent when today, and yesterday, began

    def look(self) -> None:
        """Notes what there was when a day begins."""
        today = date.today()
        if today != self._day:
            self._day, now = today, take(self._node)
            self._mornings = [(now.put.sums[0], now.get.sums[0]), self._mornings[0]]

    def runtime_info(self, _: Command, answer: Answer) -> None:
        """GET_BROKER_RUNTIME_INFO."""

        def told(facts: Facts | None, rest: list[Buffer]) -> None:
            answer(ResponseCode.SUCCESS, body=runtime_info(self._table(_store_time(rest))))

        first = self._node.positions.get(Position.LOG_MIN)
        if not self._serve.ask("query_offset", {"offset": first}, told):
            told(None, [])

    def config(self, _: Command, answer: Answer) -> None:
        """GET_BROKER_CONFIG."""
        version = '{"counter":0,"stateVersion":0,"timestamp":0}'
        answer(ResponseCode.SUCCESS, {"version": version}, properties_text(self.settings()))

    def settings(self) -> dict[str, str]:
        """The settings that RocketMQ has too, under its names."""
        settings = self._node.settings
        return {
            facts_of(group, name)["rocketmq"] or camel(name): _text(getattr(settings, name))
            for group in GROUPS
            if group is not TowlineKeys
            for name in group.__annotations__.keys() & group.model_fields.keys()
        }

    def _table(self, earliest_ms: int) -> dict[str, str]:
        self._sample()
        return {**self._numbers(earliest_ms), **self._disk(), **self._traffic()}

    def _sample(self) -> None:
        """Rates are since the question before, unless that was just now."""
        fresh = take(self._node)
        if (fresh.at - self._now.at) * 1_000 >= RATE_MS:
            self._before = self._now
        self._now = fresh

    def _numbers(self, earliest_ms: int) -> dict[str, str]:
        get = self._node.positions.get
        low, end = get(Position.LOG_MIN), get(Position.APPENDED)
        found = {
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_NAME,
            "commitLogMinOffset": str(low),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(max(0, end - get(Position.DISPATCHED))),
            "remainHowManyDataToFlush": f"{max(0, end - get(Position.FLUSHED))} B",
            "earliestMessageTimeStamp": str(earliest_ms),
            "pageCacheLockTimeMills": "0",
            "EndTransactionQueueSize": "0",
        }
        for name in _POOLS:  # nothing waits in this process: what it takes it passes on
            found |= {f"{name}ThreadPoolQueueSize": "0", f"{name}ThreadPoolQueueHeadWaitTimeMills": "0"}
        for name in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum"):
            found[name] = "0"
        return found | {"timerEnqueueTps": "0.0", "timerDequeueTps": "0.0"}

    def _disk(self) -> dict[str, str]:
        room = os.statvfs(self._node.store.root)
        total, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
        ratio = f"{1 - free / max(1, total):.2f}"
        capacity = f"Total : {total / _GIB:.1f} GiB, Free : {free / _GIB:.1f} GiB."
        return {"commitLogDiskRatio": ratio, "consumeQueueDiskRatio": ratio, "commitLogDirCapacity": capacity}

    def _traffic(self) -> dict[str, str]:
        before, now = self._before, self._now
        began_ms = now.put.began_ms or now.get.began_ms or self._node.clock.now_ms()
        messages, size, requests = now.put.sums
        return {
            "bootTimestamp": str(began_ms),
            "runtime": _duration((self._node.clock.now_ms() - began_ms) // 1_000),
            "putMessageTimesTotal": str(requests),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(size / messages if messages else 0.0),
            "putMessageEntireTimeMax": str(now.put.totals["time_max_ms"]),
            "putMessageDistributeTime": _distribution(now.put.buckets),
            **{
                f"msg{way}Total{day}Morning": str(sums[place])
                for day, sums in zip(("Today", "Yesterday"), self._mornings, strict=True)
                for place, way in enumerate(("Put", "Get"))
            },
            "msgPutTotalTodayNow": str(messages),
            "msgGetTotalTodayNow": str(now.get.sums[0]),
            "putTps": _rate(before, now, before.put.sums[0], messages),
            "getTransferredTps": _rate(before, now, before.get.sums[0], now.get.sums[0]),
            "getFoundTps": _rate(before, now, before.get.sums[2], now.get.sums[2]),
            "getMissTps": _rate(before, now, before.get.totals["empty"], now.get.totals["empty"]),
        }


def _rate(before: Sample, now: Sample, old: int, new: int) -> str:
    return str(round((new - old) / max(now.at - before.at, 1e-3), 3))


def _distribution(buckets: list[int]) -> str:
    """Requests by how long they took, as a broker says it."""
    names = ["<=0ms", *(f"{low}~{high}ms" for low, high in zip((0, *BUCKETS_MS[1:]), BUCKETS_MS[1:], strict=False))]
    names.append(f"{BUCKETS_MS[-1]}ms~")
    return " ".join(f"[{name}]:{count}" for name, count in zip(names, buckets, strict=True))


def _duration(seconds: int) -> str:
    minutes, hours = seconds // 60, seconds // 3_600
    return f"[ {hours // 24} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]"


def _store_time(rest: list[Buffer]) -> int:
    """Of the record behind an answer, in ms; -1 where there is none."""
    try:
        return decode(bytes(rest[1]), check_crc=False).store_timestamp if len(rest) > 1 else _NO_TIME
    except MalformedRecord:
        return _NO_TIME


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    return "" if value is None else str(value)

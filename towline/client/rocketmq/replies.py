"""Replies that a broker pushes to the client that asked, as the records that they were before."""

import ipaddress
from collections.abc import Mapping
from typing import Any

from towline.errors import MalformedFrame, MalformedRecord
from towline.format.record.record import NO_HOST, Host, Record, encode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import PushReply, read_header

from .talk import Pause, Session, Talk


def take(session: Session, command: Command) -> None:
    """Keeps the reply in a request of the broker's. Raises MalformedFrame."""
    header = read_header(PushReply, command.fields)
    record = Record(
        topic=header.topic.encode(),
        body=bytes(command.body),
        properties=header.properties.encode(),
        queue_id=header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times,
    )
    try:
        session.replies.append(encode(record))
    except MalformedRecord as error:
        raise MalformedFrame(f"a reply is no message: {error.describe()}") from None


def watch(session: Session, facts: Mapping[str, Any]) -> Talk:
    """The replies that came; waits for the first."""
    if not session.replies:
        yield Pause(facts["wait_ms"] / 1000)
    found, session.replies = session.replies, []
    return {}, b"".join(found)


def _host(text: str) -> Host:
    """Zeros where it is no address."""
    address, _, port = text.removeprefix("/").rpartition(":")
    try:
        return Host(ipaddress.ip_address(address.strip("[]")).packed, int(port))
    except ValueError:
        return NO_HOST

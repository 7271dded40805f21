"""The client where the system is not Linux: without eventfds, epoll, sealed memory, CLOCK_BOOTTIME, and /proc."""

import subprocess
import sys
from pathlib import Path

from tests.client.rocketmq.standins import broker, names_of, serving
from tests.processes.nodes import free_port
from tests.repo.trees import ROOT
from towline.format.remoting.codes import RequestCode

from .standin import Standin

PROGRAM = """
import fcntl, os, select, signal, sys, time


def leave_out(module, *beginnings):
    for name in [name for name in dir(module) if name.startswith(beginnings)]:
        delattr(module, name)


leave_out(os, "eventfd", "EFD_", "memfd_create", "MFD_", "pipe2", "pidfd_open", "sched_", "posix_fadvise", "O_DIRECT")
leave_out(select, "epoll", "EPOLL")
leave_out(signal, "pidfd_send_signal", "sigtimedwait")
leave_out(fcntl, "F_SEAL", "F_ADD_SEALS", "F_GET_SEALS")
leave_out(time, "CLOCK_BOOTTIME")
import asyncio, socket  # after that: they choose by what is there
leave_out(socket, "SO_PEER", "SO_PASS", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT")


def no_proc(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc", "/dev/shm", "/sys")):
        raise FileNotFoundError(arguments[0])


sys.addaudithook(no_proc)

from towline.aio.consumer import AsyncConsumer
from towline.aio.producer import AsyncProducer
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer

brokers, node = sys.argv[1:]
with Producer(brokers) as producer, AdminClient(brokers) as admin:
    results = [producer.send(Message("t", b"one"))]
    results += producer.send_batch([Message("t", b"%d" % number * 1_000) for number in range(2_000)])
    assert all(result.acknowledged for result in results)
    assert len(admin.bounds("t")) == 4
with Producer(node) as producer, Consumer(node, "t", start="first") as consumer:
    assert producer.send(Message("t", b"one")).acknowledged
    assert [message.body for message in consumer.poll(20_000)] == [b"one"]
    assert producer.send_async(Message("new", b"")).result(20).acknowledged


async def with_a_loop():
    async with AsyncProducer(node) as producer, AsyncConsumer(node, "t", start="first") as consumer:
        await producer.send(Message("t", b"two"))
        async for message in consumer:
            if message.body == b"two":
                break


asyncio.run(with_a_loop())
GroupConsumer(node, "g", "t").close()
assert not hasattr(os, "eventfd") and not hasattr(select, "epoll")
print("over")
"""


def test_a_producer_a_consumer_and_an_administrator_work(tmp_path: Path) -> None:
    port = free_port()
    node = Standin(tmp_path, {"t": 1, "new": 1}, port=port)
    node.start()
    with serving(broker()) as one, serving(names_of({"a": {0: one.address}}, {"t": {"a": 4}})) as names:
        words = [sys.executable, "-c", PROGRAM, f"rocketmq://{names.address}", f"tcp://127.0.0.1:{port}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
        codes = set(one.codes())
    node.stop()
    assert done.stdout == "over\n", done.stderr
    assert {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE} <= codes

"""The brokers of a RocketMQ cluster, as its name servers know them."""

import selectors
import time
from typing import Final

from towline.errors import NoAnswer, TowlineError
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.fastjson import loads
from towline.format.remoting.routes import read_cluster
from towline.link.poller import Writing

from .channel import Channel
from .endpoint import RocketmqEndpoint

ANSWER_S: Final = 3.0  # for one name server


def brokers_of(endpoint: RocketmqEndpoint) -> list[str]:
    """The names of all brokers, asked of the first name server that answers. Raises NoAnswer."""
    troubles = []
    for host, port in endpoint.name_servers:
        try:
            answer = _ask(host, port, endpoint)
            names = list(read_cluster(loads(answer.body))) if answer.code == ResponseCode.SUCCESS else []
            if names:
                return names
            troubles.append(f"{host}:{port}: {answer.remark or 'it knows no broker'}")
        except TowlineError as error:
            troubles.append(error.describe())
    raise NoAnswer(endpoint.of(""), int(ANSWER_S * 1000 * len(endpoint.name_servers)), "; ".join(troubles))


def _ask(host: str, port: int, endpoint: RocketmqEndpoint) -> Command:
    deadline = time.monotonic() + ANSWER_S
    channel = Channel(host, port, endpoint.credentials, endpoint.tls)
    try:
        channel.send(Command(RequestCode.GET_BROKER_CLUSTER_INFO, 1))
        while (source := channel.source) is not None and (left := deadline - time.monotonic()) > 0:
            _wait(source, left)
            for answer in channel.turn():
                return answer
        raise NoAnswer(channel.address, int(ANSWER_S * 1000), channel.trouble or "it says nothing")
    finally:
        channel.close()


def _wait(source: int | Writing, seconds: float) -> None:
    with selectors.DefaultSelector() as selector:
        if isinstance(source, Writing):
            selector.register(source.descriptor, selectors.EVENT_READ | selectors.EVENT_WRITE)
        else:
            selector.register(source, selectors.EVENT_READ)
        selector.select(seconds)

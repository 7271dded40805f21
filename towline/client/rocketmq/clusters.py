"""The brokers of a RocketMQ cluster, as its name servers know them."""

import select
import time
from typing import Final

from towline.errors import NoAnswer, TowlineError
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.fastjson import loads
from towline.format.remoting.routes import read_cluster

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
    poller, deadline = select.poll(), time.monotonic() + ANSWER_S

    def watch(descriptor: int, writes: bool) -> None:
        poller.register(descriptor, select.POLLIN | (select.POLLOUT if writes else 0))

    channel = Channel(host, port, watch, endpoint.credentials, endpoint.tls)
    try:
        channel.send(Command(RequestCode.GET_BROKER_CLUSTER_INFO, 1))
        while not channel.trouble and (left := deadline - time.monotonic()) > 0:
            poller.poll(left * 1000)
            for answer in channel.turn():
                return answer
        raise NoAnswer(channel.address, int(ANSWER_S * 1000), channel.trouble or "it says nothing")
    finally:
        channel.close()

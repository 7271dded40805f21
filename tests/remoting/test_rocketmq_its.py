"""RocketMQ's own integration tests, as they are on Maven Central: those that need no more of a broker than an address
find nothing in this node that a real broker does better."""

import re
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from peers import rocketmq
from peers.jars import JavaMissing, class_path
from tests.requirements import need

from .conftest import RemotingNode
from .java_clients import start_broker

HERE: Final = Path(__file__).parent / "its"
VERSIONS: Final = ("5.5.0", "4.9.7")  # those of which Central has the compiled tests
ROOT: Final = "org/apache/rocketmq/test/"
JUDGES: Final = re.compile(rf"{ROOT}(client/.*/(?!Base)\w+IT|delay/\w+IT)\.class")
# What stands in their code where a test reaches into a broker of its own process.
REACHES_IN: Final = re.compile(rb"brokerController|test/base/IntegrationTestBase|client/consumer/pop/BasePop")
# Some seconds, both lines' most telling ones.
SHORT: Final = (
    "client.producer.async.AsyncSendExceptionIT",
    "client.producer.async.AsyncSendWithMessageQueueSelectorIT",
    "client.producer.exception.msg.ChinaPropIT",
    "client.producer.querymsg.QueryMsgByIdIT",
    "client.producer.transaction.TransactionalMsgIT",
)
# They count the messages of three brokers, or of two.
OF_SEVERAL_BROKERS: Final = frozenset({"QueryMsgByKeyIT.testQueryMax"})
# RocketMQ itself has ignored them since 5.0: what a member fails to take in comes to another one late, or twice.
UNSTABLE: Final = ("BroadCastNormalMsgRecvFailIT.", "OrderMsgBroadCastIT.")
IGNORED: Final = "ignored"
JVMS: Final = 2  # at each of the two brokers; the tests wait for the most part
RUN_S: Final = 1_800.0
FLAGS: Final = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Drocketmq.client.logLevel=ERROR",
                "-Drocketmq.client.rebalance.waitInterval=1000")  # fmt: skip

Results = dict[str, str]  # "passed", "ignored" or what failed, by test


@pytest.fixture
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    """One for each run: after its TransactionalMsgIT a broker's TransactionalOpBatchService takes a core for good, and
    what comes later does not come in time there."""
    yield from start_broker(tmp_path_factory.mktemp("real"))


def classes(version: str, config: pytest.Config) -> str:
    """The class path, with what tells the tests an address first. Where there is no Java the test ends."""
    sources = sorted((HERE / "java").glob("*.java"))
    try:
        return class_path(HERE / "pom.xml", [f"-Drocketmq.version={version}"], sources, config.cache.mkdir("remoting"))
    except JavaMissing as error:
        need({error.name: str(error)})
        raise


def judges_in(class_path: str) -> list[str]:
    """The classes of tests of clients that need an address alone, without the name of the package."""
    jar = next(part for part in class_path.split(":") if part.endswith("-tests.jar"))
    with zipfile.ZipFile(jar) as archive:
        names = sorted(filter(JUDGES.fullmatch, archive.namelist()))
        alone = [name for name in names if not REACHES_IN.search(archive.read(name))]
    return [name.removeprefix(ROOT).removesuffix(".class").replace("/", ".") for name in alone]


def run(names: Sequence[str], class_path: str, address: str) -> Results:
    """What the tests of these classes say of the broker of a name server."""
    with TemporaryDirectory() as home:
        words = ["java", *FLAGS, f"-Duser.home={home}", f"-Dtowline.names={address}", "-cp", class_path]
        words += ["towline.remoting.RunTests", *names]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
    said = [line.removeprefix("test: ") for line in done.stdout.splitlines() if line.startswith("test: ")]
    assert said[-1:] == ["all ran"], f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return dict(line.split(": ", 1) for line in said[:-1])


def run_at_both(names: Sequence[str], class_path: str, addresses: Sequence[str]) -> list[Results]:
    parts = [names[number::JVMS] for number in range(JVMS) if names[number::JVMS]]
    with ThreadPoolExecutor(len(parts) * len(addresses)) as pool:
        runs = [[pool.submit(run, part, class_path, address) for part in parts] for address in addresses]
        return [{test: said for each in of_one for test, said in each.result().items()} for of_one in runs]


def check(names: Sequence[str], version: str, addresses: Sequence[str], config: pytest.Config) -> None:
    ours, theirs = run_at_both(names, classes(version, config), addresses)
    assert ours.keys() == theirs.keys()
    failed = {test: said for test, said in ours.items() if said not in ("passed", IGNORED)}
    assert {test for test in failed if not test.startswith(UNSTABLE)} <= OF_SEVERAL_BROKERS, failed
    for test in sorted(ours):  # messages that come late, or twice, in time that the tests count
        if ours[test] != theirs[test]:
            print(f"{test}: here {ours[test]}, at the real broker {theirs[test]}")
    differing = {test: said for test, said in failed.items() if said != theirs[test]}
    assert all(test.startswith(UNSTABLE) for test in differing), differing
    ran = {test.partition(".")[0] for test in ours}
    assert ran == {name.rpartition(".")[2] for name in names}


@pytest.mark.alone
def test_they_find_nothing_that_a_real_broker_does_better(
    node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    check(SHORT, VERSIONS[0], (f"127.0.0.1:{node.names}", real.address), request.config)


@pytest.mark.slow
@pytest.mark.timeout(RUN_S + 300)  # minutes, and more where other work goes on
@pytest.mark.parametrize("version", VERSIONS)
def test_all_of_them_find_nothing_that_a_real_broker_does_better(
    version: str, node: RemotingNode, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    names = judges_in(classes(version, request.config))
    assert len(names) > 40
    check(names, version, (f"127.0.0.1:{node.names}", real.address), request.config)

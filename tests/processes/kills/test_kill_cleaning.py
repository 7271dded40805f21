"""kill -9 at each step of cleaning: the process comes back and goes on, and so does a start after all have died."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.processes.arming import CLEAN_STEPS, Arming
from tests.processes.damage.test_cleaning import CLEAN, QUEUES, TOPIC, minima, put_of, segments, settled
from tests.processes.nodes import SEGMENT, TestNode, check_nothing_is_left, ended
from tests.processes.waiting import await_
from tests.processes.wire import WireClient
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.repair.verify import verify
from towline.log.repair.verify_report import Weight
from towline.node.supervise.recover import recovery_settings
from towline.runtime.positions import Duty, Position
from towline.runtime.settings import Settings


@pytest.fixture(scope="module")
def arming(tmp_path_factory: pytest.TempPathFactory) -> Arming:
    return Arming(tmp_path_factory.mktemp("arming"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, arming: Arming) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("cleaned"), ha_listen_port=0, **CLEAN)
    ending = ended(made)
    next(ending)
    with pytest.MonkeyPatch.context() as patch:
        arming.announce(patch)
        made.start()
        try:
            yield made
            assert made.stop()
            check_nothing_is_left(made)
        finally:
            next(ending, None)


def first_numbers(node: TestNode, low: int, end: int) -> dict[int, int]:
    """Queue id -> the first number of that queue in the log [low, end)."""
    log, directory = CommitLogReader(node.store.commitlog, SEGMENT), QueueDirectory()
    scan, found = DispatchScan(log, directory), {}
    while low < end:
        batch = scan.read(low, end)
        queues, rows = np.unique(batch.rows["queue_index"], return_index=True)
        for queue, row in zip(queues.tolist(), rows.tolist(), strict=True):
            found.setdefault(directory.queue_id(queue), int(batch.rows["queue_offset"][row]))
        low = batch.end
    log.close()
    return found


def verified(node: TestNode) -> Weight:
    settings = Settings.from_json(node.store.settings.read_text())
    found = verify(node.store, recovery_settings(settings), delays_ms=settings.delay_levels_ms)
    assert found.weight is not Weight.DAMAGE, [str(each) for each in found.findings]
    return found.weight


def put_while(node: TestNode, arming: Arming, at_most: int = 400) -> None:
    """Puts until the failpoint has fired, and a little more."""
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC, QUEUES)
    left = 12
    for number in range(at_most):
        put_of(client, number)
        left -= arming.fired
        if not left:
            break
    client.close()
    assert arming.fired, "the step was never reached"


@pytest.mark.parametrize("step", CLEAN_STEPS)
def test_a_kill_at_this_step_leaves_a_whole_store(node: TestNode, arming: Arming, step: str) -> None:
    before = node.pids()
    low = node.at(Position.LOG_MIN)
    arming.arm(f"{step}=kill@{CLEAN_STEPS[step]}")
    put_while(node, arming)
    node.await_restarted(step.partition(".")[0], before)
    await_(lambda: settled(node), 60.0, "what was begun is finished")
    check_minima(node)
    assert node.at(Position.LOG_MIN) > low
    low, known, end = node.at(Position.LOG_MIN), minima(node), node.at(Position.APPENDED)
    node.kill_all(seed=len(step))
    verified(node)
    node.start()
    assert (node.at(Position.LOG_MIN), minima(node), node.at(Position.APPENDED)) == (low, known, end)


def check_minima(node: TestNode) -> None:
    def level() -> bool:
        end = node.at(Position.DISPATCHED)
        return minima(node) == first_numbers(node, node.at(Position.LOG_MIN), end)

    await_(level, 60.0, "each queue begins with its first record in the log")
    assert segments(node)[0] == node.at(Position.LOG_MIN)


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_of_everything_while_segments_go_is_made_good_by_the_start(node: TestNode, seed: int) -> None:
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC, QUEUES)
    for number in range(20 + 7 * seed):
        put_of(client, number)
    client.close()
    low = node.at(Position.LOG_MIN)
    node.kill_all(seed=seed)
    verified(node)
    node.start()
    assert node.at(Position.LOG_MIN) <= segments(node)[0] + SEGMENT * len(segments(node))
    await_(lambda: settled(node), 60.0, "what was begun is finished")
    check_minima(node)
    assert node.at(Position.LOG_MIN) >= low
    assert node.positions.duty(Duty.ALLOCATE).pid == node.pids()["allocate"]


def test_afterwards_a_clean_stop_leaves_a_sound_store(node: TestNode) -> None:
    assert node.stop()
    assert verified(node) is Weight.NOTE
    node.start()

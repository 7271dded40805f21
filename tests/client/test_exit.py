"""A program that ends without closing its clients: what it sent is stored, and nobody is waited for long."""

import subprocess
import sys
import time

import pytest

from tests.processes.nodes import free_port
from tests.repo.trees import ROOT
from towline.link.unclosed import EXIT_S

from .standin import Silence, Standin

COUNT = 500
BEGIN = "import gc, os, sys\nfrom towline import Consumer, Message, Producer\nendpoint = sys.argv[1]\n"
SEND = f"for n in range({COUNT}):\n    producer.send_async(Message('one', b'%d' % n))\n"
ENDS = {
    "it is kept": "",
    "it is dropped": "del producer\n",
    "it is in a cycle": "loop = [producer]\nloop.append(loop)\ndel producer, loop\ngc.collect()\n",
    "the program fails": "raise SystemExit(3)\n",
}


def run(program: str, endpoint: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", BEGIN + program, endpoint]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("begin", ["", "producer.route('one')\n"], ids=["new topic", "known topic"])
def test_what_a_program_sent_is_stored_though_it_closed_nothing(node: Standin, begin: str, end: str) -> None:
    done = run(f"producer = Producer(endpoint)\n{begin}{SEND}{end}", node.endpoint)
    assert (done.returncode, done.stderr) == (3 if "SystemExit" in end else 0, "")
    assert [record.body for record in node.stored("one")] == [b"%d" % n for n in range(COUNT)]


@pytest.mark.parametrize("end", ["", "del producer\n"], ids=["it is kept", "it is dropped"])
@pytest.mark.parametrize("begin", ["", "producer.route('one')\n"], ids=["new topic", "known topic"])
def test_a_batch_that_waits_for_company_longer_than_an_end_takes_is_stored_too(
    node: Standin, begin: str, end: str
) -> None:
    done = run(f"producer = Producer(endpoint, linger_ms=60_000)\n{begin}{SEND}{end}", node.endpoint)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(node.stored("one")) == COUNT


@pytest.mark.parametrize("keeps", [True, False], ids=["it is kept", "it is dropped"])
def test_what_a_child_of_multiprocessing_sent_is_stored_too(node: Standin, keeps: bool) -> None:
    program = (
        f"import multiprocessing\ndef work():\n    {'global producer' if keeps else 'pass'}\n"
        f"    producer = Producer(endpoint)\n    {SEND.replace('    ', '        ')}"
        "child = multiprocessing.get_context('fork').Process(target=work)\nchild.start()\nchild.join()\n"
        "print(child.exitcode)\n"
    )
    done = run(program, node.endpoint)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert [record.body for record in node.stored("one")] == [b"%d" % n for n in range(COUNT)]


@pytest.mark.parametrize("away", [True, False], ids=["nobody is there", "the node is silent"])
def test_a_node_that_does_not_answer_is_not_waited_for_long(node: Standin, away: bool) -> None:
    node.judge = lambda put: Silence()
    program = f"producer = Producer(endpoint)\n{SEND}import time\nprint(time.time())\n"
    done = run(program, f"tcp://127.0.0.1:{free_port()}" if away else node.endpoint)
    waited_s = time.time() - float(done.stdout)
    assert EXIT_S - 0.5 < waited_s < EXIT_S + 20
    assert "the program ends before all that it sent has its outcome" in done.stderr


def test_a_child_of_a_fork_waits_for_nothing_of_its_parents(node: Standin) -> None:
    program = (
        f"producer = Producer(endpoint)\n{SEND}producer.flush()\nproducer.send_async(Message('new', b''))\n"
        "import warnings\nwarnings.simplefilter('ignore')\n"  # Python 3.12 and later warn of a fork beside threads
        "child = os.fork()\n"
        "if not child:\n    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = run(program, node.endpoint)
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_a_consumer_that_is_left_open_holds_nothing_up(node: Standin) -> None:
    program = (
        f"producer = Producer(endpoint)\n{SEND}consumer = Consumer(endpoint, 'one', start='first')\n"
        "print(sum(1 for message, _ in zip(consumer, range(100))))\n"
    )
    done = run(program, node.endpoint)
    assert (done.stdout, done.stderr) == ("100\n", "")

"""Ctrl-C of a command that has something to clean up."""

import os
import signal

import pytest

from towline.cli.interrupts import Interrupts


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_signal_raises_keyboard_interrupt():
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        interrupt()


def test_sigterm_is_an_interrupt_too():
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_after_the_cleaning_up_the_status_names_the_signal(number):
    with pytest.raises(SystemExit) as ended, Interrupts():
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number


def test_a_second_signal_does_not_break_off_the_cleaning_up():
    with Interrupts():
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        interrupt()


def test_what_comes_while_it_is_held_is_raised_at_the_end():
    reached = []

    def hold(interrupts: Interrupts) -> None:
        with interrupts.held():
            interrupt()
            reached.append("the end of what is held")

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        hold(interrupts)
    assert reached


def test_the_handler_of_before_is_back_afterwards():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before

"""The log: one line per event, in UTC, for people or for machines."""

import json
import logging
import os
import re

import pytest

from towline.runtime.logging import adjust, complain, configure, stamp


@pytest.fixture(autouse=True)
def _restore_the_root_logger():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_names_time_duty_process_level_message_and_facts(tmp_path):
    configure("put", tmp_path / "log").warning("made by put", extra={"base": 7, "why": "late, again"})
    (line,) = (tmp_path / "log").read_text().splitlines()
    time, rest = line.split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert rest == f'put[{os.getpid()}] WARNING made by put base=7 why="late, again"'


def test_json_holds_the_same(tmp_path):
    configure("flush", tmp_path / "log", json=True).error("sync failed", extra={"path": tmp_path})
    event = json.loads((tmp_path / "log").read_text())
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "ERROR",
        "process": "flush",
        "pid": os.getpid(),
        "logger": "flush",
        "message": "sync failed",
        "path": str(tmp_path),
    }


@pytest.mark.parametrize("as_json", [False, True], ids=["plain", "json"])
def test_an_event_is_one_line_whatever_it_says_and_its_traceback_with_it(tmp_path, as_json):
    log = configure("put", tmp_path / "log", json=as_json)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("first\nsecond", extra={"text": "third\u2028fourth"})
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert "ValueError" in line
    assert "exception" in json.loads(line) if as_json else "traceback=" in line
    assert "first" in line
    assert "fourth" in line


def test_a_fact_cannot_take_the_place_of_what_every_event_has(tmp_path):
    configure("put", tmp_path / "log", json=True).info("began", extra={"logger": "flush", "level": 3})
    event = json.loads((tmp_path / "log").read_text())
    assert (event["logger"], event["level"]) == ("put", "INFO")


def test_events_below_info_are_left_out(tmp_path):
    configure("put", tmp_path / "log").debug("detail")
    assert (tmp_path / "log").read_text() == ""


def test_the_log_is_appended_to_and_other_libraries_come_through_it_too(tmp_path):
    (tmp_path / "log").write_text("from before\n")
    configure("put", tmp_path / "log")
    logging.getLogger("numba").warning("slow")
    before, line = (tmp_path / "log").read_text().splitlines()
    assert before == "from before"
    assert line.endswith("WARNING slow")


def test_a_second_call_replaces_the_first(tmp_path):
    configure("zygote", tmp_path / "first")
    configure("put", tmp_path / "second").info("hello")
    assert (tmp_path / "first").read_text() == ""
    assert (tmp_path / "second").read_text().endswith("INFO hello\n")


def test_without_a_path_it_goes_to_standard_error(capsys):
    configure("put", None).info("hello")
    assert capsys.readouterr().err.endswith("INFO hello\n")


def test_the_form_and_the_least_level_change_while_it_is_written(tmp_path):
    log = configure("put", tmp_path / "log")
    log.info("as text")
    adjust("WARNING", json=True)
    log.info("left out")
    log.warning("as an object")
    adjust("DEBUG", json=False)
    log.debug("as text again")
    first, second, third = (tmp_path / "log").read_text().splitlines()
    assert first.endswith("INFO as text")
    assert json.loads(second)["message"] == "as an object"
    assert third.endswith(f"put[{os.getpid()}] DEBUG as text again")


def test_why_a_process_ends_is_an_event_where_all_else_is(tmp_path, capsys):
    configure("supervise", tmp_path / "log")
    complain("master", "no room")
    assert capsys.readouterr().err == "master: no room\n"
    adjust("INFO", json=True)
    complain("master", "no room")
    assert capsys.readouterr().err == ""
    event = json.loads((tmp_path / "log").read_text())
    assert (event["logger"], event["level"], event["message"]) == ("master", "ERROR", "no room")


@pytest.mark.parametrize(
    ("seconds", "stamped"),
    [(0, "1970-01-01T00:00:00.000Z"), (1_700_000_000.5, "2023-11-14T22:13:20.500Z")],
    ids=["epoch", "half a second"],
)
def test_time_is_utc_with_milliseconds(seconds, stamped):
    assert stamp(seconds) == stamped

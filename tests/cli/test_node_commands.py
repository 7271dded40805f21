"""Commands against a real node: started, written to, read, looked at and stopped by the command alone."""

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import termios
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.processes.waiting import await_
from towline.cli.main import run
from towline.client.message import Message
from towline.client.transaction import TransactionProducer
from towline.node.process.context import open_node, runtime_of
from towline.runtime.positions import Position
from towline.start import home

from .typist import TOWLINE

SMALL = (
    *("--set", "mapped_file_size_commit_log=1048576", "--set", "max_message_size=65536"),
    *("--set", "max_hash_slot_num=1000", "--set", "max_index_num=10000"),
    *("--set", "request_size_max=262144", "--set", "flush_disk_type=SYNC_FLUSH"),
    *("--port", "0"),
)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """The store of a running master."""
    with pytest.MonkeyPatch.context() as patch:
        runtime = tempfile.mkdtemp(prefix="tl-", dir="/dev/shm")
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        store = tmp_path_factory.mktemp("master")
        command = [*TOWLINE, "master", "start", "--store", str(store), *SMALL, "--ha-port", "0", "--json"]
        started = subprocess.run(command, cwd=home(), capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(started.stdout)["role"] == "master"
        yield store
        assert run(["master", "stop", "--store", str(store), "--json"]) == 0
        assert not (store / "abort").exists()
        shutil.rmtree(runtime)


@pytest.fixture
def put(master, towline):
    """`towline put` to the master, and wait until what was put is in its queue."""

    def command(*arguments):
        done = towline("put", *arguments, "--store", master, "--json")
        node = open_node(master)
        deadline = time.monotonic() + 20
        while node.positions.get(Position.DISPATCHED) < node.positions.get(Position.APPENDED):
            assert time.monotonic() < deadline
            select.select([], [], [], 0.001)
        node.positions.close()
        return done

    return command


@pytest.fixture
def flights(master, towline):
    """The topic `flights` with three queues; made once."""
    towline("topic", "create", "flights", "--queues", 3, "--store", master)
    return "flights"


class TestPutAndGet:
    def test_what_was_put_comes_back(self, master, flights, put, towline):
        sent = put(flights, '{"origin":"EWR"}', "--tags", "UA", "--key", "N14228", "--queue", 0)
        assert sent.status == 0
        assert sent.document["status"] == "PUT_OK"
        where = ("--queue", 0, "--from", sent.document["queue_offset"])
        got = towline("get", flights, *where, "--store", master, "--json").document["messages"]
        assert [(m["body"], m["tags"], m["keys"]) for m in got] == [('{"origin":"EWR"}', "UA", ["N14228"])]
        assert got[0]["unique_key"] == sent.document["unique_key"]

    def test_what_is_delayed_is_shown_by_status_and_taken_back_by_its_handle(self, master, flights, put, towline):
        before = towline("master", "status", "--store", master, "--json").document["delayed"]["waiting"]
        assert put(flights, "level", "--delay-level", 18).document["handle"] is None
        at = time.time_ns() // 1_000_000 + 3_600_000
        sent = put(flights, "time", "--deliver-at", "+1h").document
        assert at <= int(sent["handle"].partition("-")[0]) <= at + 60_000

        def status():
            return towline("master", "status", "--store", master, "--json").document["delayed"]

        shown = await_(lambda: (found := status())["waiting"] == before + 2 and found, 20.0, "both are counted")
        assert at <= shown["next_due_ms"] <= at + 60_000
        assert shown["late_ms"] == 0
        assert "delayed messages wait, the next is due at" in towline("master", "status", "--store", master).out
        done = towline("cancel", sent["handle"], "--store", master, "--json")
        assert (done.status, done.document) == (0, {"status": "PUT_OK", "handle": sent["handle"]})
        assert towline("cancel", "nonsense", "--store", master, "--json").document["error"] == "IllegalHandle"
        soon = put(flights, "soon", "--deliver-at", "2026-01-31T12:00").document["handle"]
        refused = towline("cancel", soon, "--store", master, "--json")
        assert refused.status == 1
        assert "CANCEL_TOO_LATE" in refused.document["sentence"]
        assert "towline cancel" in towline("put", flights, "x", "--deliver-at", "+1d", "--store", master).out

    def test_lines_of_a_file_are_messages_and_tags_filter_them(self, master, flights, put, tmp_path, towline):
        lines = tmp_path / "lines"
        lines.write_text("".join(f"line {number}\n" for number in range(500)))
        sent = put(flights, "--lines", lines, "--tags", "LINES", "--queue", 1)
        assert (sent.document["sent"], sent.document["acked"]) == (500, 500)
        got = towline("get", flights, "--tags", "LINES", "--max", 600, "--store", master, "--json").document["messages"]
        assert [message["body"] for message in got] == [f"line {number}" for number in range(500)]

    def test_a_file_is_one_message_whatever_its_bytes(self, master, flights, put, tmp_path, towline):
        file = tmp_path / "file"
        file.write_bytes(b"\xff\x00[bold]")
        assert put(flights, "--file", file, "--queue", 2, "--tags", "FILE").status == 0
        got = towline("get", flights, "--tags", "FILE", "--store", master, "--json").document["messages"]
        assert [message["body"] for message in got] == [b"\xff\x00[bold]".hex()]
        assert "[bold]" in towline("get", flights, "--tags", "FILE", "--store", master).out

    def test_keys_of_lines_choose_queues_and_a_template_shows_them(self, master, flights, put, tmp_path, towline):
        lines = tmp_path / "lines"
        lines.write_text("".join(f"k{number % 3}\tbody {number}\n" for number in range(12)) + "no key\n")
        assert towline("put", "keyed", "--lines", lines, "--key-separator", "\t", "--store", master).status == 0
        done = towline("get", "keyed", "--max", 100, "--format", r"%q %k|%v|%t%%\n", "--store", master)
        assert (done.status, done.err) == (0, "")
        rows = [row.partition(" ") for row in done.out.splitlines()]
        assert sorted(row[2] for row in rows)[-1] == "|no key|keyed%"
        queues = {(row[2].partition("|")[0], row[0]) for row in rows if "no key" not in row[2]}
        assert len(queues) == 3
        assert "k1|body 4|keyed%" in {row[2] for row in rows}

    @pytest.mark.parametrize("template", ["%x", "\\q", "%"])
    def test_a_template_that_means_nothing_is_refused_with_what_there_is(self, master, template, towline):
        done = towline("get", "flights", "--format", template, "--store", master)
        assert done.status == 2
        assert "is nothing here" in done.err

    def test_follow_ends_with_the_number_asked_for(self, master, flights, put, towline):
        put(flights, "followed", "--tags", "FOLLOW")
        command = ("get", flights, "--tags", "FOLLOW", "--follow", "--max", 1, "--store", master, "--json")
        assert towline(*command).document["body"] == "followed"

    def test_follow_ends_with_ctrl_c_and_no_traceback(self, master, flights):
        command = [*TOWLINE, "get", flights, "--follow"]
        command += ["--from", "first", "--store", str(master)]
        reader = subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        assert reader.stdout.readline()
        reader.send_signal(signal.SIGINT)
        _, err = reader.communicate(timeout=30)
        assert (reader.returncode, err) == (130, "")

    def test_an_unknown_topic_is_refused_with_the_remedy(self, master, towline):
        done = towline("get", "nothing", "--store", master, "--json")
        assert done.status == 1
        assert done.document["error"] == "UnknownTopic"
        assert "topic create" in done.document["remedy"]

    def test_a_queue_that_the_topic_does_not_have_is_refused(self, master, flights, towline):
        done = towline("get", flights, "--queue", 9, "--store", master, "--json")
        assert (done.status, done.document["error"]) == (1, "UnknownQueue")

    def test_an_offset_beyond_the_end_is_told_of(self, master, flights, put, towline):
        put(flights, "somewhere", "--queue", 1)
        done = towline("get", flights, "--queue", 1, "--from", 99_999, "--store", master)
        assert done.status == 0
        assert "queue 1 went on at" in done.err
        assert "instead of 99999" in done.err

    def test_a_body_above_the_limit_is_refused_with_the_limit(self, master, flights, put, tmp_path, towline):
        file = tmp_path / "large"
        file.write_bytes(os.urandom(70_000))
        done = put(flights, "--file", file)
        assert done.status == 1
        assert "65536" in done.document["sentence"]


def half_full(pipe):
    """Whether that many bytes wait in it to be read."""
    waiting = int.from_bytes(fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)
    return waiting >= fcntl.fcntl(pipe.fileno(), fcntl.F_GETPIPE_SZ) // 2


def test_a_bundle_of_a_running_node_has_its_status(master, tmp_path, towline):
    archive = tmp_path / "bundle.tar.gz"
    done = towline("debug", "bundle", "--store", master, "--output", archive, "--json")
    assert done.status == 0
    assert done.document["left_out"] == {"doctor.json: the speed of the disk, and ports": "a node runs on the store"}
    with tarfile.open(archive) as opened:
        status = json.load(opened.extractfile("bundle/status.json"))
        secret = runtime_of(master).secret.read_text()
        assert secret.encode() not in b"".join(opened.extractfile(each).read() for each in opened.getmembers())
    assert (status["role"], status["store"]) == ("master", str(master))


class TestGetAsAMemberOfAGroup:
    """`towline get --follow --group`."""

    COUNT = 300
    BODY = "x" * 1_000  # of all together far more than a pipe holds

    @pytest.fixture
    def topic(self, master, tmp_path, towline, request):
        """A topic of three queues with messages."""
        name = f"group-{request.node.name[:40].replace('[', '-').replace(']', '')}"
        towline("topic", "create", name, "--queues", 3, "--store", master)
        lines = tmp_path / "lines"
        lines.write_text("".join(f"{number} {self.BODY}\n" for number in range(self.COUNT)))
        assert towline("put", name, "--lines", lines, "--store", master).status == 0
        return name

    def member(self, master, topic):
        """A process that reads until it is ended."""
        command = [*TOWLINE, "get", topic, "--follow", "--group", "printers", "--store", str(master), "--json"]
        return subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def group(self, master, topic, towline):
        """How many members it has, and how far it is behind in this topic."""
        done = towline("group", "describe", "printers", "--store", master, "--json")
        behind = sum(queue["lag"] for queue in done.document["queues"] if queue["topic"] == topic)
        return len(done.document["members"]), behind

    def test_what_was_printed_is_committed_and_the_next_member_goes_on_behind_it(self, master, topic, towline):
        command = ("get", topic, "--follow", "--group", "printers", "--store", master, "--format", "%v\\n", "--max")
        first = towline(*command, self.COUNT // 3).out.splitlines()
        assert self.group(master, topic, towline) == (0, self.COUNT - self.COUNT // 3)
        rest = towline(*command, self.COUNT - self.COUNT // 3).out.splitlines()
        assert sorted(int(line.split()[0]) for line in first + rest) == list(range(self.COUNT))
        assert self.group(master, topic, towline) == (0, 0)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ctrl_c_leaves_the_group_and_nothing_comes_again(self, master, topic, number, towline):
        with self.member(master, topic) as reader:
            assert reader.stdout is not None
            printed = [json.loads(reader.stdout.readline())["body"] for _ in range(self.COUNT)]
            assert self.group(master, topic, towline)[0] == 1
            reader.send_signal(number)
            out, err = reader.communicate(timeout=30)
        assert (reader.returncode, out, err) == (128 + number, "", "")
        assert sorted(int(body.split()[0]) for body in printed) == list(range(self.COUNT))
        assert self.group(master, topic, towline) == (0, 0)

    def test_ctrl_c_amid_a_message_loses_nothing(self, master, topic, towline):
        with self.member(master, topic) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline()
            await_(lambda: half_full(reader.stdout), 30.0, "it prints faster than it is read")
            reader.send_signal(signal.SIGINT)
            out = reader.stdout.read()  # with what was taken out of the pipe for the first line
            _, err = reader.communicate(timeout=30)
        assert (reader.returncode, err) == (130, "")
        members, left = self.group(master, topic, towline)
        assert members == 0
        assert 0 < left < self.COUNT
        printed = 1 + sum(line.endswith("}") for line in out.splitlines())
        assert printed + left in (self.COUNT, self.COUNT + 1), "of what was printed one may come again"


class TestQuery:
    @pytest.fixture
    def message(self, master, flights, put, towline):
        put(flights, "asked for", "--key", "ASKED")
        command = ("query", "--topic", flights, "--key", "ASKED", "--store", master, "--json")
        return towline(*command).document["messages"][0]

    def test_finds_a_message_by_key_unique_key_id_and_offset(self, master, flights, message, towline):
        topic, where = ("--topic", flights), ("--store", master, "--json")
        for asked in (
            (*topic, "--unique-key", message["unique_key"]),
            ("--id", message["message_id"]),
            ("--offset", message["physical_offset"]),
        ):
            found = towline("query", *asked, *where).document
            assert [m["body"] for m in found["messages"]] == ["asked for"]

    def test_finds_the_first_messages_stored_at_or_after_a_time(self, master, flights, message, towline):
        command = ("query", "--topic", flights, "--time", "2001-01-01T00:00", "--max", 3, "--store", master, "--json")
        found = towline(*command).document["messages"]
        times = [m["store_timestamp"] for m in found]
        assert len(times) == 3
        assert times == sorted(times)

    def test_times_bound_what_is_found(self, master, flights, message, towline):
        asked = ("query", "--topic", flights, "--store", master, "--json")
        stored = message["store_timestamp"]
        before, then, after = (datetime.fromtimestamp((stored + ms) / 1000).isoformat() for ms in (-1, 0, 1))

        def is_found(*more):
            return message["unique_key"] in [m["unique_key"] for m in towline(*asked, *more).document["messages"]]

        for key in (("--key", "ASKED"), ("--unique-key", message["unique_key"])):
            assert is_found(*key, "--begin", then, "--end", then)
            assert not is_found(*key, "--begin", after)
            assert not is_found(*key, "--end", before)
        assert is_found("--time", then, "--end", then)
        assert not is_found("--time", "2001-01-01T00:00", "--end", before, "--max", 1_000)

    def test_says_that_there_are_older_messages(self, master, flights, put, towline):
        for text in ("old", "new"):
            put(flights, text, "--key", "TWICE")
        done = towline("query", "--topic", flights, "--key", "TWICE", "--max", 1, "--store", master)
        assert "older" in done.err
        assert "new" in done.out
        assert "old " not in done.out

    def test_an_unknown_topic_is_refused(self, master, towline):
        done = towline("query", "--topic", "nothing", "--key", "k", "--store", master, "--json")
        assert (done.status, done.document["error"]) == (1, "UnknownTopic")

    @pytest.mark.parametrize("more", [("--offset", 0, "--end", "2026-01-31"), ("--id", "00", "--begin", "2026-01-31")])
    def test_a_time_goes_with_a_key(self, master, towline, more):
        assert towline("query", *more, "--store", master).status == 2

    def test_says_when_nothing_is_found(self, master, flights, towline):
        done = towline("query", "--topic", flights, "--key", "NOTHING", "--store", master, "--json")
        assert (done.status, done.document["count"]) == (0, 0)


class TestTopics:
    def test_are_listed_and_described_with_their_queues(self, master, flights, towline):
        listed = towline("topic", "list", "--store", master, "--json").document["topics"]
        assert flights in [topic["topic"] for topic in listed]
        described = towline("topic", "describe", flights, "--store", master, "--json").document
        assert [queue["queue_id"] for queue in described["queues"]] == [0, 1, 2]
        assert described["messages"] == sum(queue["messages"] for queue in described["queues"])
        assert "read and write" in towline("topic", "describe", flights, "--store", master).out

    def test_of_an_illegal_name_are_refused(self, master, towline):
        done = towline("topic", "create", "no spaces", "--store", master, "--json")
        assert done.status == 1
        assert "no spaces" in done.document["sentence"]

    def test_have_a_time_and_a_size_that_are_shown_changed_and_taken_away(self, master, towline):
        where = ("--store", master)
        kept = ("--retention", "3d", "--retention-bytes", "10GB")
        made = towline("topic", "create", "kept", "--queues", 1, *kept, *where, "--json").document
        assert (made["retention_ms"], made["retention_bytes"]) == (3 * 86_400_000, 10 << 30)
        assert "keeps 3d, 10.0 GiB a queue" in towline("topic", "describe", "kept", *where).out
        listed = next(line for line in towline("topic", "list", *where).out.splitlines() if "kept" in line)
        assert "3d" in listed
        altered = towline("topic", "alter", "kept", "--retention", "90s", *where)
        assert "keeps 90s, 10.0 GiB a queue" in altered.out
        assert "keeps 90s" in towline("topic", "alter", "kept", "--retention-bytes", "none", *where).out
        gone = towline("topic", "alter", "kept", "--retention", "none", *where, "--json").document
        assert (gone["retention_ms"], gone["retention_bytes"]) == (None, None)
        assert "keeps" not in towline("topic", "describe", "kept", *where).out

    @pytest.mark.parametrize(
        ("option", "text", "said"),
        [
            ("--retention", "3", "'3' is not a time as 3d"),
            ("--retention", "-1d", "is not a time"),
            ("--retention-bytes", "ten", "'ten' is not a size as 10GB"),
            ("--retention", "0s", "1000 to"),
            ("--retention-bytes", "1KB", "65536 to"),
        ],
    )
    def test_are_not_kept_for_what_is_no_time_or_size(self, master, flights, towline, option, text, said):
        done = towline("topic", "alter", flights, option, text, "--store", master)
        assert done.status in (1, 2)
        assert said in " ".join(done.err.replace("│", " ").split())

    def test_are_changed_step_by_step_and_deleted(self, master, towline):
        where = ("--store", master, "--json")
        made = towline("topic", "create", "brief", "--queues", 2, "--perm", "r", "--order", *where).document
        assert (made["perm"], made["order"], made["read_queues"]) == (4, True, 2)
        assert towline("topic", "alter", "brief", "--perm", "rw", "--no-order", *where).document["perm"] == 6
        refused = towline("topic", "alter", "brief", "--read-queues", 1, "--write-queues", 1, *where)
        assert refused.status == 1
        assert "lower the write queues" in refused.document["sentence"]
        assert "1 queues to write" in towline("topic", "alter", "brief", "--write-queues", 1, "--store", master).out
        assert towline("topic", "alter", "brief", *where).status == 2
        assert towline("topic", "delete", "brief", *where).status == 2
        assert towline("topic", "delete", "brief", "--yes", "--store", master).out == "brief is deleted\n"
        assert towline("topic", "delete", "brief", "--yes", *where).status == 1

    def test_may_be_what_new_topics_take_after(self, master, towline):
        where = ("--store", master, "--json")
        made = towline(
            "topic", "create", "after", "--read-queues", 4, "--write-queues", 2, "--inherit", *where
        ).document
        assert (made["perm"], made["read_queues"], made["write_queues"]) == (7, 4, 2)
        assert towline("topic", "alter", "after", "--perm", "r", *where).document["perm"] == 5
        assert towline("topic", "alter", "after", "--no-inherit", *where).document["perm"] == 4
        assert "inherited" in towline("topic", "alter", "after", "--inherit", "--store", master).out

    def test_of_the_broker_are_protected(self, master, towline):
        done = towline("topic", "delete", "TBW102", "--yes", "--store", master, "--json")
        assert done.status == 1
        assert "broker's own" in done.document["sentence"]


class TestStats:
    def test_tell_what_came_in_and_went_out_by_topic_and_queue(self, master, flights, put, towline):
        put(flights, "counted", "--queue", 2)
        towline("get", flights, "--queue", 2, "--from", 0, "--store", master)
        document = towline("stats", "--store", master, "--interval", 0.1, "--json").document
        assert document["put"]["messages"] >= 1
        assert document["put"]["requests"] == sum(row["requests"] for row in document["put"]["time_ms"]["buckets"])
        assert flights in [row["topic"] for row in document["topics"]]
        rows = towline("stats", "--store", master, "--topic", flights, "--interval", 0.1, "--json").document[
            "queue_rows"
        ]
        [row] = [row for row in rows if row["queue_id"] == 2]
        assert row["put"]["messages"] >= 1 <= row["get"]["messages"]
        assert row["put"]["bytes"] > 100 * row["put"]["messages"]

    def test_are_tables_for_people(self, master, flights, put, towline):
        put(flights, "counted")
        out = towline("stats", "--store", master, "--interval", 0.1).out
        assert "put requests" in out
        assert flights in out
        assert "of them by the log's writer" in out
        assert "uncounted" not in out
        assert "below 1" in out or "ms and more" in out
        assert "slow puts" in towline("master", "status", "--store", master).out

    def test_say_why_puts_were_refused_and_what_to_do(self, master, flights, towline):
        assert towline("put", flights, "refused", "--queue", 99, "--store", master).status != 0
        [row] = towline("stats", "--store", master, "--interval", 0.1, "--json").document["refused"]["causes"]
        assert (row["cause"], row["count"] >= 1) == ("request", True)
        assert f"request: {row['count']}; {row['remedy']}" in " ".join(
            towline("stats", "--store", master, "--interval", 0.1).out.split()
        )

    def test_of_a_node_that_does_not_run_are_refused(self, tmp_path, towline):
        done = towline("stats", "--store", tmp_path, "--interval", 0.1, "--json")
        assert (done.status, done.document["error"]) == (1, "NodeNotRunning")


class TestStatus:
    def test_shows_processes_positions_memory_and_disk(self, master, towline):
        status = towline("master", "status", "--store", master, "--json").document
        duties = {process["duty"]: process for process in status["processes"]}
        processes = {"put", "allocate", "flush", "reput", "serve", "send", "schedule"}
        assert set(duties) == {"supervise", "zygote", *processes}
        assert all(process["state"] == "RUNNING" and process["uss"] <= process["pss"] for process in duties.values())
        assert status["pss"] == sum(process["pss"] for process in duties.values()) > 0
        assert status["positions"]["appended"] >= status["positions"]["flushed"] >= status["visible_end"] >= 0
        assert status["disk"]["commitlog"]["size"] % 1_048_576 == 0
        assert status["endpoints"]["put"][0].startswith("ipc://")

    def test_is_a_table_for_people(self, master, towline):
        out = towline("master", "status", "--store", master).out
        assert "behind the writer" in out
        assert "zygote" in out

    def test_is_found_by_the_command_of_another_role_too(self, master, towline):
        """Which role a node has may change while it runs."""
        assert towline("slave", "status", "--store", master, "--json").document["role"] == "master"

    def test_settings_are_those_the_node_runs_with(self, master, towline):
        [row] = towline("config", "get", "flush_disk_type", "--store", master, "--json").document["settings"]
        assert (row["value"], row["default"], row["live"]) == ("SYNC_FLUSH", "ASYNC_FLUSH", "")

    def test_inspect_reads_the_files_of_the_running_node(self, master, flights, put, towline):
        put(flights, "inspected", "--key", "INSPECTED")
        found = towline("query", "--topic", flights, "--key", "INSPECTED", "--store", master, "--json").document
        (message,) = found["messages"]
        offset = message["physical_offset"]
        assert (
            towline("inspect", "record", "--store", master, "--offset", offset, "--json").document["body"]
            == "inspected"
        )
        shown = towline(
            "inspect", "index", "--store", master, "--topic", flights, "--key", "INSPECTED", "--json"
        ).document
        assert [link["holds"] for file in shown["files"] for link in file["chain"] if link["same_hash"]] == ["the key"]


class TestStart:
    def test_is_refused_while_another_node_has_the_store_naming_its_pid(self, master, towline):
        pid = towline("master", "status", "--store", master, "--json").document["pid"]
        done = towline("master", "start", "--store", master, *SMALL, "--ha-port", 0, "--json")
        assert done.status == 1
        assert done.document["error"] == "StoreTaken"
        assert str(pid) in done.document["sentence"]

    def test_is_refused_with_an_unknown_setting_naming_the_nearest(self, tmp_path, towline):
        done = towline("master", "start", "--store", tmp_path, "--set", "flush_disk_typo=SYNC_FLUSH", "--json")
        assert done.status == 1
        assert done.document["error"] == "UnknownSetting"
        assert "flush_disk_type" in done.document["sentence"]

    def test_of_a_slave_wants_its_masters_address(self, tmp_path, towline):
        done = towline("slave", "start", "--store", tmp_path, "--json")
        assert done.status == 1
        assert "ha_master_address" in done.document["sentence"]

    def test_of_a_master_with_a_slaves_settings_is_refused(self, tmp_path, towline):
        settings = ("--set", "broker_role=SLAVE", "--set", "ha_master_address=127.0.0.1:1")
        done = towline("master", "start", "--store", tmp_path, *settings, "--json")
        assert done.status == 1
        assert "start a slave" in done.document["sentence"]

    def test_is_refused_on_a_path_that_cannot_be_a_directory(self, tmp_path, towline):
        (tmp_path / "file").touch()
        done = towline("master", "start", "--store", tmp_path / "file" / "below", "--json")
        assert done.status == 1
        assert done.document["error"] == "StoreNotWritable"

    def test_is_refused_with_another_segment_size_than_the_stores(self, tmp_path, towline):
        (tmp_path / "commitlog").mkdir()
        (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
        done = towline("master", "start", "--store", tmp_path, *SMALL, "--ha-port", 0, "--json")
        assert done.status == 1
        assert done.document["error"] == "SegmentSizeMismatch"
        assert "4096" in done.document["sentence"]

    def test_in_the_foreground_ends_with_ctrl_c_and_a_clean_store(self, tmp_path):
        command = [*TOWLINE, "master", "start"]
        command += ["--store", str(tmp_path), *SMALL, "--ha-port", "0", "--foreground", "--json"]
        node = subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert node.stdout is not None
        assert '"ready": true' in node.stdout.readline()
        node.send_signal(signal.SIGINT)
        _, err = node.communicate(timeout=30)
        assert node.returncode == 0, err
        assert not (Path(tmp_path) / "abort").exists()


def test_open_transactions_are_listed_and_ended_by_hand(towline, master):
    def asked(*arguments):
        return towline("transaction", *arguments, "--store", master, "--json")

    def listed():
        found = asked("list").document["transactions"]
        return found if len(found) == 2 else None

    with TransactionProducer(f"ipc://{runtime_of(master).socket('put')}", "billing") as producer:
        kept, _ = producer.begin(Message("bills", b"kept"))
        dropped, _ = producer.begin(Message("bills", b"dropped"))
    shown = await_(listed, 60.0, "both are read")
    assert [(row["transaction"], row["topic"]) for row in shown] == [(str(kept), "bills"), (str(dropped), "bills")]
    assert asked("list", "--group", "other").document == {"transactions": []}
    assert asked("commit", kept).document == {"transaction": str(kept), "outcome": "committed", "status": "PUT_OK"}
    assert towline("transaction", "rollback", dropped, "--store", master).status == 0
    assert asked("status").document["open"] == 0
    again = asked("rollback", kept)
    assert again.status == 1
    assert "ALREADY_COMMITTED" in again.out + again.err
    assert asked("commit", "no transaction").status == 1
    for command in ("list", "status"):
        assert towline("transaction", command, "--store", master).status == 0

"""What every command keeps to, whether a node runs or not."""

import json

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from towline.cli.get_work import pointed
from towline.cli.lazy import every_command
from towline.cli.main import app
from towline.pipeline.registry import JOBS

BENCHES = ("put", "delay", "consume", "filter", "ha", "peers", "reput", "segments", "spark", "recovery", "steps")


EVERYTHING = dict(every_command(get_command(app)))
COMMANDS = {path: command for path, command in EVERYTHING.items() if not isinstance(command, TyperGroup)}

each_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


DRILLS = (
    "kill-master",
    "kill-slave",
    "kill-process",
    "pause-slave",
    "partition",
    "rejoin-diverged",
    "slow-disk",
    "disk-full",
    "rolling-restart",
    "all",
)


def test_the_commands_are_those_of_the_manual():
    assert {" ".join(path) for path in COMMANDS} == {
        "demo",
        "dev",
        "doctor",
        "debug bundle",
        *(f"{role} {name}" for role in ("master", "slave") for name in ("start", "stop", "status")),
        *("put", "cancel"),
        *(f"context {name}" for name in ("add", "use", "list", "remove")),
        "get",
        "query",
        *(f"transaction {name}" for name in ("status", "list", "commit", "rollback")),
        "topic list",
        "topic describe",
        "topic create",
        "topic alter",
        "topic delete",
        "stats",
        "top",
        "web",
        "group list",
        "group describe",
        "group configure",
        "group reset-offset",
        "group delete",
        "promote",
        "slave accept-loss",
        *(f"keys {name}" for name in ("new", "list", "change", "revoke")),
        "inspect record",
        "inspect queue",
        "inspect index",
        "inspect checkpoint",
        "inspect durable",
        "inspect diverged",
        "inspect layout",
        *(f"bench {name}" for name in (*BENCHES, "layouts")),
        *(f"drill {name}" for name in DRILLS),
        "loadtest",
        "simulate",
        "pipeline list",
        "pipeline ship",
        *(f"pipeline {name}" for name in JOBS),
        "cluster init",
        "cluster up",
        "cluster down",
        "cluster restart",
        "cluster status",
        "cluster scale",
        "cluster replace-node",
        "cluster units",
        *("config get", "config set", "config unset", "settings keys", "settings show"),
        *(f"store {name}" for name in ("backup", "clean", "mend", "repair", "restore", "verify")),
        *("kafka import", "kafka export"),
        "version",
    }


@each_command
def test_a_command_explains_itself_and_each_of_its_options(path, towline):
    done = towline(*path, "--help")
    assert done.status == 0
    assert "--json" in done.out
    command = COMMANDS[path]
    assert len((command.help or "").split()) > 3
    parameters = command.get_params(typer.Context(command))
    undocumented = [parameter.name for parameter in parameters if not getattr(parameter, "help", "")]
    assert undocumented == []


@each_command
def test_a_wrong_option_is_refused_in_one_sentence_that_says_where_to_look(path, towline):
    done = towline(*path, "--no-such-option")
    assert done.status == 2
    assert f"see `towline {' '.join(path)} --help`" in done.err
    assert done.out == ""


def test_a_wrong_call_with_json_is_a_document_too(towline):
    done = towline("inspect", "record", "--json")
    assert done.status == 2
    assert set(done.document) == {"error", "sentence", "remedy"}


class TestErrors:
    def test_are_a_sentence_and_a_remedy_on_standard_error(self, tmp_path, towline):
        done = towline("master", "status", "--store", tmp_path)
        assert done.status == 1
        remedy = f"start it with `towline master start --store {tmp_path}` or `towline slave start --store {tmp_path}`"
        assert done.err == f"towline: no node is running on {tmp_path}; {remedy}\n"
        assert done.out == ""

    @pytest.mark.parametrize(
        "command",
        [
            ("master", "status"),
            ("slave", "status"),
            ("master", "stop"),
            ("slave", "stop"),
            ("topic", "list"),
            ("get", "flights"),
            ("put", "flights", "body"),
            ("query", "--topic", "flights", "--key", "N14228"),
            ("config", "get"),
            ("config", "set", "broker_permission=4"),
        ],
        ids=" ".join,
    )
    def test_are_one_document_with_json(self, tmp_path, towline, command):
        done = towline(*command, "--store", tmp_path, "--json")
        assert done.status == 1
        assert set(done.document) == {"error", "sentence", "remedy"}
        assert done.document["error"] == "NodeNotRunning"

    def test_name_an_address_where_nobody_answers(self, towline):
        done = towline("topic", "list", "--endpoint", "tcp://127.0.0.1:1", "--json")
        assert done.status == 1
        assert done.document["error"] == "NoAnswer"
        assert "tcp://127.0.0.1:1" in done.document["sentence"]

    def test_ask_for_one_node_and_not_two(self, tmp_path, towline):
        assert towline("topic", "list").status == 2
        assert towline("topic", "list", "--store", tmp_path, "--endpoint", "tcp://127.0.0.1:1").status == 2

    @pytest.mark.parametrize(
        "command",
        [
            ("put", "t"),
            ("put", "t", "body", "--lines", "-"),
            ("put", "t", "body", "--property", "no-value"),
            ("put", "t", "body", "--deliver-at", "tomorrow"),
            ("put", "t", "body", "--deliver-at", "+1h", "--delay-level", "1"),
            ("get", "t", "--from", "yesterday"),
            ("get", "t", "--group", "g"),
            ("get", "t", "--group", "g", "--follow", "--queue", "0"),
            ("get", "t", "--group", "g", "--follow", "--from", "7"),
            ("get", "t", "--group", "g", "--follow", "--tags", "a", "--sql", "b = 1"),
            ("query", "--key", "k"),
            ("query", "--topic", "t"),
            ("query", "--topic", "t", "--time", "noon"),
            ("settings", "show", "--set", "no-value"),
        ],
        ids=" ".join,
    )
    def test_refuse_a_call_that_means_nothing(self, towline, command):
        where = () if command[0] == "settings" else ("--endpoint", "tcp://127.0.0.1:1")
        done = towline(*command, *where)
        assert done.status == 2
        assert done.err.startswith("towline: ")


class TestSettings:
    def test_keys_come_with_default_unit_and_meaning(self, towline):
        keys = {key["key"]: key for key in towline("settings", "keys", "--json").document["keys"]}
        assert keys["flush_disk_type"]["default"] == "ASYNC_FLUSH"
        assert keys["mapped_file_size_commit_log"]["unit"] == "bytes"
        assert keys["warm_mapped_file_enable"]["rocketmq"] == "warmMapedFileEnable"
        assert all(len(key["meaning"].split()) > 2 for key in keys.values())

    def test_keys_are_found_by_a_part_of_their_name(self, towline):
        found = [key["key"] for key in towline("settings", "keys", "ha_master", "--json").document["keys"]]
        assert found == ["ha_master_address"]

    def test_of_a_broker_conf_are_shown_by_our_names(self, tmp_path, towline):
        conf = tmp_path / "broker.conf"
        conf.write_text("flushDiskType=SYNC_FLUSH\nlistenPort=11000\n")
        shown = towline("settings", "show", "--config", conf, "--set", "ha_listen_port=0", "--json").document[
            "settings"
        ]
        assert (shown["flush_disk_type"], shown["listen_port"], shown["ha_listen_port"]) == ("SYNC_FLUSH", 11000, 0)
        assert (shown["name_server_port"], shown["fast_listen_port"]) == (0, 0), "those of 10911"
        assert "broker_id" not in shown

    def test_show_that_beyond_loopback_clients_come_over_tls_alone(self, towline):
        flags = "--set", "listen_host=192.0.2.1", "--set", "keys_dir=/keys"
        shown = towline("settings", "show", *flags, "--json").document["settings"]
        assert shown["tls_server_mode"] == "ENFORCING"

    def test_show_every_key_on_request(self, towline):
        shown = towline("settings", "show", "--all", "--json").document["settings"]
        assert shown["ha_listen_port"] == 10912

    def test_with_an_unknown_key_are_refused_with_the_nearest(self, towline):
        done = towline("settings", "show", "--set", "flush_disk_typ=SYNC_FLUSH", "--json")
        assert done.status == 1
        assert "flush_disk_type" in done.document["sentence"]


def test_version_says_what_runs(towline):
    document = towline("version", "--json").document
    assert document["version"] == "0.1.0"
    assert document["protocol"] == [1, 1]
    assert towline("version").out.startswith("towline 0.1.0")


def test_without_a_command_the_help_is_shown(towline):
    done = towline()
    assert "demo" in done.out + done.err


def test_json_goes_to_standard_output_in_one_line(towline):
    assert json.loads(towline("inspect", "layout", "--json").out)


@pytest.mark.parametrize(
    ("expression", "position", "shown"),
    [
        ("a > > 5", 4, "  a > > 5\n      ^"),
        ("a >", 3, "  a >\n     ^"),
        ("a > 5\nAND\tb ~ 5\nOR c", 12, "  AND b ~ 5\n        ^"),
        ("a = 1 OR " * 20 + "~", 180, f"  {('a = 1 OR ' * 20)[-40:]}~\n  {' ' * 40}^"),
    ],
)
def test_an_expression_is_shown_where_it_goes_wrong(expression, position, shown):
    assert pointed(expression, position) == shown


@pytest.mark.parametrize("group", [[], ["master"], ["topic"]])
def test_who_asks_for_nothing_is_shown_what_there_is(group, towline):
    done = towline(*group)
    assert (done.status, done.err) == (0, "")
    assert done.out == towline(*group, "--help").out
    assert done.out.startswith(" ".join(["Usage: towline", *group, "[OPTIONS]"]))


def test_the_version_is_an_option_too(towline):
    done = towline("--version")
    assert (done.status, done.out) == (0, towline("version").out)
    assert done.out.startswith("towline ")

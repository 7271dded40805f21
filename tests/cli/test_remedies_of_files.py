"""What is said of files beside a store: contexts, cluster files, rings of keys, bundles. The remedy then works."""

import re
import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes.nodes import free_port

from .typist import Typist, filled


def test_contexts_that_cannot_be_read_are_made_anew(typist: Typist, tmp_path: Path) -> None:
    listed, file = "towline context list", tmp_path / "config" / "towline" / "contexts.json"
    file.parent.mkdir(parents=True)
    file.write_text("{", encoding="utf-8")
    [added] = typist.refused(listed)
    file.unlink()
    typist.works(filled(added, NAME="here", ENDPOINT=f"tcp://127.0.0.1:{free_port()}"))
    typist.works(listed)


def test_a_cluster_file_is_written_beside_the_one_that_is_wrong_or_there(typist: Typist, tmp_path: Path) -> None:
    file, other = tmp_path / "cluster.toml", tmp_path / "other.toml"
    written = f"towline cluster init -f {file}"
    typist.works(written)
    assert "name another file" in typist(written).document["sentence"]
    file.write_text(file.read_text(encoding="utf-8").replace("port =", "prot =", 1), encoding="utf-8")
    [anew] = typist.refused(f"towline cluster status -f {file}")
    typist.works(anew, "-f", str(other))
    typist.works(f"towline cluster units -f {other} --out {tmp_path / 'units'}")


def test_a_group_that_the_file_has_not_is_named_beside_those_it_has(typist: Typist, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    typist.works(f"towline cluster init -f {file}")
    unknown = typist(f"towline cluster down -f {file} -g nobody")
    assert unknown.document["error"] == "UnknownNode"
    assert "it has the groups a" in unknown.document["sentence"]
    typist.works(f"towline cluster down -f {file} -g a")


def test_a_bundle_gets_another_name_where_there_is_one(typist: Typist, tmp_path: Path) -> None:
    (typist.store / "commitlog").mkdir(parents=True)
    bundle = f"towline debug bundle --store {typist.store} --output"
    typist.works(bundle, str(tmp_path / "one.tar.gz"))
    refused = typist(bundle, str(tmp_path / "one.tar.gz"))
    assert (refused.document["error"], "--output" in refused.document["remedy"]) == ("BundleExists", True)
    typist.works(bundle, str(tmp_path / "two.tar.gz"))


def test_a_ring_gets_its_certificate_and_a_client_its_key(
    typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, port = tmp_path / "ring", free_port()
    typist.works(f"towline keys new first --dir {ring} --role producer")
    (ring / "server.pem").unlink()
    start = f"towline master start --store {typist.store}"
    with_keys = ("--set", f"keys_dir={ring}", "--set", f"listen_port={port}")
    made = typist.refused_once(start, f"--dir {ring}", *with_keys)
    typist.works(filled(made, NAME="second", ROLE="producer"))
    typist.works(start, *with_keys)
    put = f"towline put orders hello --endpoint tcp://127.0.0.1:{port}"
    key = typist.refused_once(put, "keys new NAME")
    handed = typist(filled(key, NAME="third", DIR=ring, ROLE="producer")).document["file"]
    monkeypatch.setenv("TOWLINE_KEYS", handed)
    typist.works(put)


def test_keys_that_are_not_there_are_listed(typist: Typist, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    typist.works(f"towline keys new app --dir {ring} --role producer")
    listed = typist.refused_once(f"towline keys revoke nobody --dir {ring}", "keys list")
    typist.works(filled(listed, DIR=ring))


def test_a_port_that_is_taken_is_changed_in_the_cluster_file(typist: Typist, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    typist.works(f"towline cluster init -f {file} --slaves 0")
    small = "[settings]\nmapped_file_size_commit_log = 1048576\nmax_message_size = 65536\nrequest_size_max = 262144\n"
    up = f"towline cluster up -f {file}"
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        taken = f"port = {listening.getsockname()[1]} "
        text = file.read_text(encoding="utf-8").replace("[settings]\n", small, 1)
        file.write_text(re.sub(r"port = \d+ ", taken, text), encoding="utf-8")
        [node] = typist(up).document["groups"][0]["nodes"]
        assert f"`listen_port` or `port` of the node in {file}" in node["remedy"]
        assert "--set" not in node["remedy"]
    file.write_text(re.sub(r"port = \d+ ", f"port = {free_port()} ", text), encoding="utf-8")
    try:
        typist.works(up)
    finally:
        typist(f"towline cluster down -f {file}")

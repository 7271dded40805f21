"""`towline doctor`: what it looks at, what it finds wrong, and that it leaves nothing."""

import resource
import shutil
import socket

import pytest

from towline.cli import doctor_checks
from towline.limits import MIB


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "WRITTEN", MIB)


def checks(towline, *words: object) -> dict[str, dict[str, str]]:
    found = towline("doctor", "--json", *words).document["checks"]
    return {check["name"]: check for check in found}


def test_every_check_says_what_it_found_and_what_is_wrong_says_what_to_do(towline, tmp_path, small):
    found = checks(towline, "--store", tmp_path / "not" / "there")
    assert {"system", "CPUs", "open files (ulimit -Hn)", "memory", "shared memory", "clock"} <= found.keys()
    assert f"disk of {tmp_path}" in found
    assert all(check["found"] for check in found.values())
    assert all(check["remedy"] for check in found.values() if check["state"] != "ok")
    assert not list(tmp_path.iterdir())


def test_a_taken_port_is_named_with_who_has_it(towline, tmp_path, small, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor_checks, "_PORTS", ("listen_port",))
        monkeypatch.setenv("TOWLINE_LISTEN_PORT", str(port))
        check = checks(towline, "--store", tmp_path)[f"listen_port {port}"]
    assert check["state"] == "warning"
    assert check["found"].startswith("taken: process ")


def test_a_disk_that_cannot_be_written_to_is_wrong(towline, tmp_path, monkeypatch):
    def refuse(where):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor_checks, "_measure", refuse)
    done = towline("doctor", "--store", tmp_path)
    assert done.status == 1
    assert "Permission denied" in done.out


@pytest.mark.parametrize(
    ("sync_us", "state"), [(5.0, "warning"), (300.0, "ok"), (50_000.0, "warning")], ids=["none", "real", "slow"]
)
def test_a_sync_that_is_none_and_a_slow_one_are_told(towline, tmp_path, monkeypatch, sync_us, state):
    monkeypatch.setattr(doctor_checks, "_measure", lambda where: (1e9, sync_us))
    assert checks(towline, "--store", tmp_path)["one sync of 1 KiB"]["state"] == state


def test_little_room_and_few_files_are_told(towline, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(doctor_checks, "_measure", lambda where: (1e9, 300.0))
    monkeypatch.setattr(shutil, "disk_usage", lambda where: type(usage)(usage.total, usage.used, MIB))
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 4096))
    found = checks(towline, "--store", tmp_path)
    assert found[f"disk of {tmp_path}"]["state"] == "warning"
    assert found["shared memory"]["state"] == "wrong"
    assert found["open files (ulimit -Hn)"]["remedy"].startswith("set LimitNOFILE=65536")

"""Units, environment files and the compose file: read back as systemd and compose would."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from towline.cluster.derived import given_to
from towline.cluster.units import Target, environment_word, files_of, systemd_word
from towline.route.file import parse_cluster
from towline.runtime.settings import read_settings

from .environment import parse_environment

TEXT = """
name = "demo"
settings = { keys_dir = "keys", message_delay_level = "1s 5s", dispatchers = 'a"b\\c' }
[[group]]
name = "a"
[[group.node]]
id = 0
host = "10.0.0.7"
port = 10911
store = "/var/lib/towline/a 0%"
[[group.node]]
id = 1
host = "10.0.0.8"
port = 10911
store = "/var/lib/towline/a-1"
runtime = "/srv/run/$a"
"""
TARGET = Target(Path("/etc/towline"), Path("/bin/echo"), "root", "example.org/towline:0.1")


@pytest.fixture(scope="module")
def cluster():
    return parse_cluster(TEXT, Path("/etc/towline/cluster.toml"))


@pytest.fixture(scope="module")
def files(cluster):
    return files_of(cluster, TARGET)


def service(text):
    """Key -> values of the [Service] section."""
    found = {}
    for line in text[text.index("[Service]") : text.index("[Install]")].splitlines()[1:]:
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_each_node_has_a_unit_and_an_environment_in_the_directory_of_its_host(files):
    assert sorted(files) == [
        "10.0.0.7/towline-demo-a-0.env",
        "10.0.0.7/towline-demo-a-0.service",
        "10.0.0.8/towline-demo-a-1.env",
        "10.0.0.8/towline-demo-a-1.service",
        "compose.yaml",
    ]


def test_a_unit_starts_its_node_in_front_on_its_store(files):
    keys = service(files["10.0.0.7/towline-demo-a-0.service"])
    [command] = keys["ExecStart"]
    assert shlex.split(command.replace("%%", "%")) == [
        *("/bin/echo", "master", "start", "--foreground"),
        *("--store", "/var/lib/towline/a 0%"),
    ]
    assert keys["EnvironmentFile"] == ["/etc/towline/towline-demo-a-0.env"]
    assert (keys["KillMode"], keys["Restart"], keys["User"]) == (["mixed"], ["on-failure"], ["root"])
    assert (keys["Type"], keys["TimeoutStartSec"], keys["WatchdogSec"]) == (["notify"], ["infinity"], ["60"])
    [slave] = service(files["10.0.0.8/towline-demo-a-1.service"])["ExecStart"]
    assert "echo slave start" in slave


def test_a_runtime_directory_below_run_is_systemds_another_is_made_by_the_unit(files):
    first, second = (service(files[f"10.0.0.{host}/towline-demo-a-{id}.service"]) for host, id in ((7, 0), (8, 1)))
    assert first["RuntimeDirectory"] == ["towline-demo-a-0"]
    assert first["RuntimeDirectoryPreserve"] == ["restart"]
    assert "RuntimeDirectory" not in second
    assert second["ExecStartPre"][1] == '+/usr/bin/install -d -m 0700 -o root "/srv/run/$$a"'


def test_an_environment_holds_all_that_the_node_is_given(cluster, files):
    found = dict(parse_environment(files["10.0.0.8/towline-demo-a-1.env"]))
    assert found.pop("XDG_RUNTIME_DIR") == "/srv/run/$a"
    group = cluster.group("a")
    given = given_to(cluster, group, group.node(1), "slave")
    assert found == {f"TOWLINE_{key.upper()}": value for key, value in given.items()}
    settings = read_settings(None, {"broker_role": "SLAVE"}, found)
    assert (settings.broker_name, settings.broker_id, settings.dispatchers) == ("a", 1, 'a"b\\c')


def test_compose_has_a_service_for_each_node_that_only_its_host_starts(files):
    lines = [line.strip() for line in files["compose.yaml"].splitlines()]
    assert lines.count('image: "example.org/towline:0.1"') == 2
    assert 'profiles: ["10.0.0.7"]' in lines
    assert 'env_file: "10.0.0.8/towline-demo-a-1.env"' in lines
    assert 'command: ["towline", "master", "start", "--foreground", "--store", "/var/lib/towline/a 0%"]' in lines
    assert 'volumes: ["/var/lib/towline/a-1:/var/lib/towline/a-1", "/etc/towline/keys:/etc/towline/keys:ro"]' in lines
    assert 'tmpfs: ["/srv/run/$$a:mode=1777"]' in lines


def test_compose_mounts_the_files_of_tls_too():
    files = 'tls_server_mode = "ENFORCING", tls_server_cert_path = "n.crt", tls_server_key_path = "/etc/n.key"'
    cluster = parse_cluster(TEXT.replace('keys_dir = "keys"', files), Path("/etc/towline/cluster.toml"))
    compose = files_of(cluster, TARGET)["compose.yaml"]
    assert compose.count('"/etc/towline/n.crt:/etc/towline/n.crt:ro", "/etc/n.key:/etc/n.key:ro"') == 2


@pytest.mark.parametrize(
    ("text", "unit", "environment"),
    [
        ("plain-1.0:/x", "plain-1.0:/x", "plain-1.0:/x"),
        ("a b", '"a b"', '"a b"'),
        ("50%", '"50%%"', '"50%"'),
        ('a"\\', '"a\\"\\\\"', '"a\\"\\\\"'),
        ("", '""', '""'),
    ],
)
def test_words_are_quoted_as_their_reader_wants_it(text, unit, environment):
    assert (systemd_word(text), environment_word(text)) == (unit, environment)
    assert parse_environment(f"A={environment}\n") == {"A": text}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_units(files, tmp_path):
    units = []
    for name, text in files.items():
        if name.endswith(".service"):
            path = tmp_path / Path(name).name
            path.write_text(text)
            units.append(str(path))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")

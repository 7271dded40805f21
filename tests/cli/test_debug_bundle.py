"""`towline debug bundle`: everything a bug report needs, and no secret."""

import errno
import json
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from towline import start
from towline.cli import doctor_checks
from towline.cli.redaction import REMOVED, Redaction
from towline.link.keys import certificate_of, make_node_keys, new_key, read_key, revoke_key
from towline.places import Store
from towline.runtime.settings import Settings

PASSWORD = "hunter2-of-etcd"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"


def files_of(archive):
    """What is in an archive, without the directory that holds all of it."""
    with tarfile.open(archive) as opened:
        found = {}
        for entry in opened.getmembers():
            assert entry.name.startswith(f"{archive.name.removesuffix('.tar.gz')}/")
            found[entry.name.partition("/")[2]] = opened.extractfile(entry).read().decode()
        return found


@contextmanager
def held(store):
    """Somebody else holds the store's lock, as a node does."""
    program = "import sys, pathlib; from towline.runtime.locks import StoreLock\n"
    program += "lock = StoreLock(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", program, store.lock]
    with subprocess.Popen(words, cwd=start.home(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.stdin.close()


@pytest.fixture
def keys(tmp_path):
    """A key ring with a client, and all that is secret in it."""
    ring = tmp_path / "ring"
    make_node_keys(ring)
    handed = read_key(new_key(ring, "billing", ["producer", "consumer"]))
    nodes = read_key(ring / "server.secret.json")
    certified = certificate_of(ring).read_text().splitlines()[1]  # of its private key
    return ring, {handed.access, nodes.secret, certified}


@pytest.fixture
def store(tmp_path, keys):
    """What a node left that is down: with secrets wherever one could get into its files."""
    ring, secrets = keys
    places = Store(tmp_path / "store")
    for directory in (places.commitlog, places.run, places.ha):
        directory.mkdir(parents=True)
    settings = json.loads(Settings.model_validate({"keys_dir": str(ring)}).to_json())
    settings["etcd_endpoints"] = f"http://root:{PASSWORD}@etcd1:2379,http://etcd2:2379"
    places.settings.write_text(json.dumps(settings))
    places.recovery.write_text(json.dumps({"log_end": 4711, "by": f"https://root:{PASSWORD}@monitor/"}))
    places.link.write_text(json.dumps({"connected": False, "secretKey": PASSWORD, "why": "no answer"}))
    lines = [
        *(f"INFO key {secret} was shown" for secret in sorted(secrets)),
        f"WARNING no answer from http://root:{PASSWORD}@etcd1:2379: timed out",
        f'ERROR refused: {{"accessKey": "{PASSWORD}", "topic": "orders"}}',
        f"DEBUG Authorization: Bearer {PASSWORD}",
        f"DEBUG password={PASSWORD}&next=1",
        PEM,
        "INFO the last line",
    ]
    places.node_log.write_text("\n".join(lines) + "\n")
    return places


class TestOfANodeThatIsDown:
    def test_no_secret_is_in_any_file(self, store, keys, tmp_path, towline):
        archive = tmp_path / "report.tar.gz"
        assert towline("debug", "bundle", "--store", store.root, "--output", archive).status == 0
        whole = "\n".join(files_of(archive).values())
        for secret in (PASSWORD, "MIIEowIBAAKCAQEA7", *keys[1]):
            assert secret not in whole
        assert len(keys[1]) == 3

    def test_everything_else_is_there(self, store, tmp_path, towline):
        archive = tmp_path / "report.tar.gz"
        done = towline("debug", "bundle", "--store", store.root, "--output", archive, "--json")
        files = files_of(archive)
        assert set(done.document["files"]) == set(files)
        assert done.document["bytes"] == archive.stat().st_size
        assert json.loads(files["run/recovery.json"]) == {"log_end": 4711, "by": f"https://{REMOVED}@monitor/"}
        assert json.loads(files["run/settings.json"])["etcd_endpoints"].endswith("@etcd1:2379,http://etcd2:2379")
        assert json.loads(files["run/link.json"]) == {"connected": False, "secretKey": REMOVED, "why": "no answer"}
        assert json.loads(files["versions.json"])["packages"]["pyzmq"]
        assert {check["name"] for check in json.loads(files["doctor.json"])["checks"]} >= {"memory", "clock"}
        log = files["run/node.log"].splitlines()
        assert log[-1] == "INFO the last line"
        assert f"WARNING no answer from http://{REMOVED}@etcd1:2379: timed out" in log
        assert [line for line in log if '"topic": "orders"' in line]

    def test_what_signs_for_a_key_is_taken_out_where_no_file_has_it(self, store, keys, tmp_path, towline):
        ring, secrets = keys
        another = read_key(new_key(ring, "lost", ["admin"]))
        revoke_key(ring, "lost")
        for handed in (ring / "handed").iterdir():
            handed.unlink()
        signing = secrets | {another.access}
        store.node_log.write_text("\n".join(f"INFO signed with {secret}" for secret in signing))
        archive = tmp_path / "report.tar.gz"
        assert towline("debug", "bundle", "--store", store.root, "--output", archive).status == 0
        assert files_of(archive)["run/node.log"].splitlines() == [f"INFO signed with {REMOVED}"] * 4

    def test_what_was_kept_and_what_a_process_failed_with_are_there(self, store, tmp_path, towline):
        store.kept_settings.write_text("put_waiting_max = 7\n")
        (store.run / "put.failure").write_text(json.dumps({"error": "DiskFull", "facts": ["x", 9], "sentence": "none"}))
        archive = tmp_path / "report.tar.gz"
        assert towline("debug", "bundle", "--store", store.root, "--output", archive).status == 0
        files = files_of(archive)
        assert files["kept.toml"] == "put_waiting_max = 7\n"
        assert json.loads(files["run/put.failure"])["error"] == "DiskFull"

    def test_what_is_missing_is_told_with_the_reason(self, store, tmp_path, towline):
        store.recovery.unlink()
        archive = tmp_path / "report.tar.gz"
        left_out = towline("debug", "bundle", "--store", store.root, "--output", archive, "--json").document["left_out"]
        assert left_out["status.json"] == f"no node is running on {store.root}"
        assert "run/recovery.json" in left_out
        assert json.loads(files_of(archive)["left_out.json"]) == left_out

    def test_a_damaged_file_comes_as_it_is(self, store, tmp_path, towline):
        store.link.write_text(f'{{"connected": fal, "secretKey": "{PASSWORD}"')
        archive = tmp_path / "report.tar.gz"
        assert towline("debug", "bundle", "--store", store.root, "--output", archive).status == 0
        assert files_of(archive)["run/link.json"] == f'{{"connected": fal, "secretKey": {REMOVED}'

    def test_a_key_file_that_cannot_be_read_is_told(self, store, keys, tmp_path, towline):
        (keys[0] / "allowed" / "odd.json").write_text("[]")
        archive = tmp_path / "report.tar.gz"
        left_out = towline("debug", "bundle", "--store", store.root, "--output", archive, "--json").document["left_out"]
        assert [name for name in left_out if name.endswith("odd.json")]
        assert not [secret for secret in keys[1] if secret in "\n".join(files_of(archive).values())]

    def test_the_end_of_a_long_log_is_kept_from_the_beginning_of_a_line(self, store, tmp_path, monkeypatch, towline):
        monkeypatch.setattr("towline.cli.debug_work.LOG_TAIL", 100)
        store.node_log.write_text("".join(f"line {number}\n" for number in range(1000)))
        archive = tmp_path / "report.tar.gz"
        assert towline("debug", "bundle", "--store", store.root, "--output", archive).status == 0
        kept = files_of(archive)["run/node.log"].splitlines()
        assert kept == [f"line {number}" for number in range(1000 - len(kept), 1000)]
        assert len(kept) == 11

    def test_only_its_owner_may_read_it(self, store, tmp_path, towline):
        archive = tmp_path / "report.tar.gz"
        assert towline("debug", "bundle", "--store", store.root, "--output", archive).status == 0
        assert archive.stat().st_mode & 0o777 == 0o600
        assert sorted(each.name for each in tmp_path.iterdir()) == ["report.tar.gz", "ring", "store"]


class TestTheDisk:
    """Its speed is measured where nobody works on it."""

    @pytest.fixture
    def measured(self, monkeypatch) -> list[Path]:
        places: list[Path] = []

        def measure(where: Path) -> tuple[float, float]:
            places.append(where)
            return 1e9, 300.0

        monkeypatch.setattr(doctor_checks, "_measure", measure)
        monkeypatch.setattr(doctor_checks, "NEEDED", 0)
        return places

    def checks(self, store, archive, towline) -> tuple[set[str], str]:
        """Names of the doctor's checks, and why others are not there."""
        done = towline("debug", "bundle", "--store", store.root, "--output", archive, "--json")
        names = {check["name"] for check in json.loads(files_of(archive)["doctor.json"])["checks"]}
        return names, done.document["left_out"].get("doctor.json: the speed of the disk, and ports", "")

    def test_is_measured_where_the_node_is_down(self, store, tmp_path, measured, towline):
        names, left_out = self.checks(store, tmp_path / "report.tar.gz", towline)
        assert (measured, left_out) == ([store.root], "")
        assert "speed of the disk" in names
        assert [name for name in names if name.startswith("listen_port")]

    def test_and_the_ports_are_left_alone_beside_a_node(self, store, tmp_path, measured, towline):
        with held(store):
            names, left_out = self.checks(store, tmp_path / "report.tar.gz", towline)
        assert (measured, left_out) == ([], "a node runs on the store")
        assert not [name for name in names if "speed" in name or "port " in name]
        assert f"disk of {store.root}" in names

    def test_is_not_written_to_where_little_is_free(self, store, tmp_path, measured, monkeypatch, towline):
        monkeypatch.setattr(doctor_checks, "NEEDED", 1 << 62)
        _, left_out = self.checks(store, tmp_path / "report.tar.gz", towline)
        assert (measured, left_out) == ([], "the disk has little room")


class TestRefusals:
    def test_what_cannot_be_written_whole_leaves_nothing(self, store, tmp_path, monkeypatch, towline):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(tarfile.TarFile, "addfile", full)
        done = towline("debug", "bundle", "--store", store.root, "--output", tmp_path / "report.tar.gz")
        assert done.status == 1
        assert "No space left" in done.err
        assert not (tmp_path / "report.tar.gz").exists()

    def test_a_file_is_not_overwritten(self, store, tmp_path, towline):
        archive = tmp_path / "report.tar.gz"
        archive.write_text("of last week")
        done = towline("debug", "bundle", "--store", store.root, "--output", archive, "--json")
        assert (done.status, done.document["error"]) == (1, "BundleExists")
        assert archive.read_text() == "of last week"

    def test_what_is_no_store_has_nothing_to_tell(self, tmp_path, towline):
        done = towline("debug", "bundle", "--store", tmp_path, "--json")
        assert (done.status, done.document["error"]) == (1, "NoStoreHere")

    def test_a_directory_that_is_not_there_is_named(self, store, tmp_path, towline):
        done = towline("debug", "bundle", "--store", store.root, "--output", tmp_path / "none" / "report.tar.gz")
        assert done.status == 1
        assert "none" in done.err


def test_without_a_name_it_is_called_after_the_time(store, tmp_path, monkeypatch, towline):
    monkeypatch.chdir(tmp_path)
    assert towline("debug", "bundle", "--store", store.root).status == 0
    (made,) = tmp_path.glob("towline-debug-*.tar.gz")
    assert "versions.json" in files_of(made)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("tcp://node0:10911,tcp://node1:10911", "tcp://node0:10911,tcp://node1:10911"),
        ("amqp://a:b/c@host/d", f"amqp://{REMOVED}@host/d"),
        ("mail a@b.org or see ipc:///run/a.sock", "mail a@b.org or see ipc:///run/a.sock"),
        ("secret_key: 'a b', next", f"secret_key: {REMOVED}, next"),
        ("the secret is out", "the secret is out"),
        ('{"password":"x\\"', '{"password":' + REMOVED),
        ("known-to-us here", f"{REMOVED} here"),
        ("short", "short"),
    ],
)
def test_a_text_without_its_secrets(text, left):
    assert Redaction(["known-to-us", "short"]).text(text) == left

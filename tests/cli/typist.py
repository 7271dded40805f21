"""Types the commands of a refusal as a person would."""

import json
import random
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes.nodes import processes_of
from towline.cluster.sample import FIRST_PORT, STEP, is_free
from towline.route.nodes import PORTS
from towline.start import home

TOWLINE = (sys.executable, "-c", "from towline.start import main; main()")
SETTINGS = tuple(
    f"--set={key}={value}"
    for key, value in {
        "mapped_file_size_commit_log": 1048576,
        "max_message_size": 65536,
        "request_size_max": 262144,
        "max_hash_slot_num": 1000,
        "max_index_num": 10000,
        "listen_port": 0,
        "ha_listen_port": 0,
    }.items()
)
TYPED = re.compile(r"`([^`]+)`")


def filled(command: str, **words: object) -> str:
    """A command with something in the place of its words in upper case."""
    for name, value in words.items():
        assert re.search(rf"\b{name}\b", command), f"{command} leaves no {name} open"
        command = re.sub(rf"\b{name}\b", str(value), command)
    return command


def spread_ports(file: Path) -> None:
    """Gives a cluster file ports that hardly any other has: two `cluster init` at a time find the same ones free."""
    drawn = random.sample(range(FIRST_PORT, 32_000, STEP), 400)
    bases = (base for base in drawn if all(is_free(base + above) for above in PORTS.values()))
    text = file.read_text(encoding="utf-8")
    file.write_text(
        re.sub(r"^port = \d+", lambda _: f"port = {next(bases)}", text, flags=re.MULTILINE), encoding="utf-8"
    )


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@dataclass
class Typist:
    """Types commands in a shell of their own: a node outlives it. `store` is where the node's files are."""

    store: Path

    def __call__(self, command: str, *more: str) -> Done:
        """`towline` and everything behind it. A command that starts a node does so with small files."""
        words = shlex.split(command)[1:]
        words += [*(SETTINGS if "start" in words else ()), *more, *(() if "--help" in words else ("--json",))]
        done = subprocess.run([*TOWLINE, *words], cwd=home(), capture_output=True, text=True, timeout=200)
        return Done(done.returncode, done.stdout, done.stderr)

    def shown(self, command: str) -> str:
        """What a person reads on standard output."""
        words = [*TOWLINE, *shlex.split(command)[1:]]
        return subprocess.run(words, cwd=home(), capture_output=True, text=True, timeout=200).stdout

    def refused(self, command: str, *more: str) -> list[str]:
        """What a refusal has in backticks."""
        done = self(command, *more)
        assert done.status in (1, 2), done
        return TYPED.findall(f"{done.document['sentence']}; {done.document['remedy']}")

    def refused_once(self, command: str, naming: str, *more: str) -> str:
        """The one of those in which these words stand."""
        [found] = [typed for typed in self.refused(command, *more) if naming in typed]
        return found

    def works(self, command: str, *more: str) -> None:
        done = self(command, *more)
        assert done.status == 0, done

    def stop(self) -> None:
        if processes_of(self.store):
            done = self(f"towline master stop --store {self.store}")
            assert "clean" in done.document, done


def endpoint_of(typist: Typist) -> str:
    """Where the node of the store is asked."""
    done = typist(f"towline master status --store {typist.store}")
    return str(done.document["endpoints"]["serve"][0])

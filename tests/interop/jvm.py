"""A Java program that obeys commands, one JSON line each way; and a real message store behind one."""

import json
import queue
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .releases import Programs

OPENED: Final = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref", "java.base/java.lang")
FLAGS: Final = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
ANSWER_S: Final = 60.0
STREAM_WINDOW: Final = 64  # so far a stream is ahead of whoever reads its lines, so that it is not over before a kill
STORE: Final = "towline.interop.StoreCommands"
Spec = Mapping[str, Any]


class Jvm:
    """One process. `home` takes its logs and the files that are exchanged with it."""

    def __init__(self, programs: Programs, home: Path, commands: str = STORE) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.release = programs.release
        self._home = home
        self._files = 0
        opened = [word for name in OPENED for word in ("--add-opens", f"{name}=ALL-UNNAMED")]
        quiet = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", "-Dfile.encoding=UTF-8"]
        command = ["java", *FLAGS, *opened, *quiet, "-cp", programs.classpath, "towline.interop.Tool", commands]
        self._errors = (home / "stderr").open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8"
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def line(self, deadline_s: float = ANSWER_S) -> dict[str, Any] | None:
        """The next line that it writes, or None when it has ended."""
        text = self._lines.get(timeout=deadline_s)
        return None if text is None else json.loads(text)

    def ask(self, **command: object) -> dict[str, Any]:
        self.tell(**command)
        answer = self.line()
        assert answer is not None, f"the {self.release} program ended: {self._tail()}"
        assert "error" not in answer, answer["error"]
        return answer

    def ask_about(self, lines: Iterable[object], **command: object) -> dict[str, Any]:
        """With a file of JSON lines."""
        return self.ask(file=str(self.write(lines)), **command)

    def write(self, lines: Iterable[object]) -> Path:
        path = self._path()
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path

    def listed(self, lines: Iterable[object] | None = None, **command: object) -> tuple[dict[str, Any], list[Any]]:
        """The answer, and the JSON lines of the file that it wrote."""
        path = self._path()
        told = {**command, "out": str(path)}
        answer = self.ask(**told) if lines is None else self.ask_about(lines, **told)
        with path.open(encoding="utf-8") as found:
            return answer, [json.loads(line) for line in found]

    def kill(self) -> list[dict[str, Any]]:
        """SIGKILL, as by kill -9. The lines it had written before."""
        self._process.kill()
        self._process.wait()
        return list(self._rest())

    def stream(self, specs: Sequence[Spec]) -> None:
        """Every request of a stream is acknowledged when this returns."""
        self.tell(op="stream", file=str(self.write(specs)), window=len(specs))
        for number in range(len(specs)):
            self._await_acked(number)
        assert (line := self.line()) == {"ended": True}, line

    def stream_until_killed(self, specs: Sequence[Spec], count: int) -> int:
        """SIGKILL once `count` requests of a stream were acknowledged; how many it acknowledged in all."""
        assert self._process.stdin is not None
        assert count + STREAM_WINDOW < len(specs), "the window would not hold it back"
        self.tell(op="stream", file=str(self.write(specs)), window=STREAM_WINDOW)
        for number in range(count):
            self._await_acked(number)
            self._process.stdin.write(".")
            self._process.stdin.flush()
        count += len(self.kill())
        return count

    def _await_acked(self, number: int) -> None:
        line = self.line()
        assert line is not None, f"the {self.release} program ended: {self._tail()}"
        assert line.get("acked") == number, line

    def await_end(self) -> None:
        self._process.wait(ANSWER_S)

    def close(self) -> None:
        """Ends it, in whatever state it is."""
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _rest(self) -> Iterator[dict[str, Any]]:
        while (line := self.line()) is not None:
            yield line

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.endswith("\n"):  # a killed process may leave part of a line
                self._lines.put(text)
        self._lines.put(None)

    def _path(self) -> Path:
        self._files += 1
        return self._home / f"{self._files:04d}.jsonl"

    def _tail(self) -> str:
        return (self._home / "stderr").read_text(errors="replace")[-2000:]


class RealStore:
    """A DefaultMessageStore on the directory `root`, from `open` to `close`."""

    def __init__(self, jvm: Jvm, root: Path, **config: object) -> None:
        self.jvm, self.root = jvm, root
        self._config = {
            "storePathRootDir": str(root),
            "storePathCommitLog": str(root / "commitlog"),
            "haListenPort": 0,
            "timerWheelEnable": False,
            "enableCompaction": False,
            "cleanFileForciblyEnable": False,
            "fileReservedTime": 1000,
            **config,
        }

    def configure(self, **config: object) -> None:
        """From the next `open` on."""
        self._config.update(config)

    def open(self) -> dict[str, Any]:
        """Its lowest and its end offset; everything is dispatched."""
        facts = self.jvm.ask(op="open", config=self._config)
        assert facts["loaded"], "the real store does not load the directory"
        return facts

    def close(self) -> None:
        """A clean end."""
        self.jvm.ask(op="close")
        assert not (self.root / "abort").exists()

    def put(self, specs: Sequence[Spec]) -> list[dict[str, Any]]:
        """Each was PUT_OK; they are in their queues when this returns."""
        results: list[dict[str, Any]] = self.jvm.ask_about(specs, op="put")["results"]
        statuses = {result["status"] for result in results}
        assert statuses <= {"PUT_OK"}, statuses
        self.jvm.ask(op="await_dispatched")
        return results

    def read(self) -> list[dict[str, Any]]:
        """Every message of every queue, in the order of topic, queue and offset, as `Messages.seen` shows it."""
        return self.jvm.listed(op="read")[1]

    def query(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """For each pair of topic and key the log offsets that the index leads to."""
        return self.jvm.listed(pairs, op="query")[1]

    def offsets_by_time(self, topic: str, queue_id: int, times: Sequence[int]) -> list[int]:
        """For each time in ms the queue offset that the store finds for it."""
        answer = self.jvm.ask(op="offsets_by_time", topic=topic, queue_id=queue_id, times=list(times))
        found: list[int] = answer["offsets"]
        return found

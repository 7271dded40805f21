"""The log of a process: one line per event, in UTC with milliseconds, for people or as JSON.

    2026-11-21T04:39:19.123Z put[4711] WARNING segment made by put base=1073741824 waited_ms=12

    {"time": "2026-11-21T04:39:19.123Z", "level": "WARNING", "process": "put", "pid": 4711, "logger": "put", ...}

Facts are given with `extra`: `log.warning("segment made by put", extra={"base": base, "waited_ms": waited})`.
"""

import json as json_module
import logging
import sys
import time
from pathlib import Path
from typing import Final

from .log_file import LogFile

# What every record has; all else came with `extra`.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(duty: str, path: Path | None, json: bool = False) -> logging.Logger:
    """Log to `path` (appending) or to stderr when it is None; returns the duty's own logger.

    Calling it again replaces what it set up before: a process that was forked begins its own log this way.
    """
    handler = logging.StreamHandler(sys.stderr) if path is None else LogFile(path)
    handler.setFormatter(JsonFormatter(duty) if json else LineFormatter(duty))
    root = logging.getLogger()
    for former, _ in _own(root):
        root.removeHandler(former)
        former.close()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    return logging.getLogger(duty)


def adjust(level: str, *, json: bool) -> None:
    """What this process logs from now on, and how; nothing of what `configure` set up changes besides."""
    root = logging.getLogger()
    root.setLevel(level)
    for handler, formatter in _own(root):
        if isinstance(formatter, JsonFormatter) != json:
            handler.setFormatter((JsonFormatter if json else LineFormatter)(formatter.duty))


def complain(who: str, why: object) -> None:
    """Why a process ends, on standard error; an event of the log where that is JSON."""
    if any(isinstance(formatter, JsonFormatter) for _, formatter in _own(logging.getLogger())):
        logging.getLogger(who).error("%s", why)
    else:
        sys.stderr.write(f"{who}: {why}\n")


def _own(root: logging.Logger) -> "list[tuple[logging.Handler, LineFormatter]]":
    """Handlers that `configure` made, with their formatters."""
    return [(each, each.formatter) for each in root.handlers if isinstance(each.formatter, LineFormatter)]


class LineFormatter(logging.Formatter):
    traceback = "traceback"  # its name among the facts

    def __init__(self, duty: str) -> None:
        super().__init__()
        self.duty = duty

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={_plain(value)}" for name, value in self.facts(record).items())
        head = f"{stamp(record.created)} {self.duty}[{record.process}] {record.levelname}"
        return f"{head} {_one_line(record.getMessage())}{facts}"

    def facts(self, record: logging.LogRecord) -> dict[str, object]:
        """What came with `extra`, and the traceback if there is one."""
        facts = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            facts[self.traceback] = self.formatException(record.exc_info)
        return facts


class JsonFormatter(LineFormatter):
    traceback = "exception"

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": stamp(record.created),
            "level": record.levelname,
            "process": self.duty,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = {name: value for name, value in self.facts(record).items() if name not in event}
        return json_module.dumps(event | facts, default=str)


def stamp(seconds: float) -> str:
    """Seconds since 1970 -> `2026-11-21T04:39:19.123Z`."""
    ms = int(seconds * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ms // 1000))}.{ms % 1000:03d}Z"


def _plain(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json_module.dumps(text)


def _one_line(text: str) -> str:
    return text if text.isprintable() else json_module.dumps(text, ensure_ascii=False)[1:-1]

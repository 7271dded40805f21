"""Does the work of `towline debug bundle`."""

import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from towline.errors import Remedy, TowlineError
from towline.link.keys import ENVIRONMENT, certificate_of
from towline.log.errors import NoStoreHere
from towline.node.process.context import runtime_in_use
from towline.node.report.status import read_status
from towline.places import Store
from towline.runtime.locks import store_is_held

from .doctor_checks import checks_of, has_room, looks_at
from .output import add_row, progress_console, show, sized, table
from .redaction import Redaction, key_in, private_lines, secrets_of
from .versions import packages, versions

LOG_TAIL: Final = 1 << 20  # bytes of each log
_MODE: Final = 0o600


class BundleExists(TowlineError, remedy=Remedy.FIX_CALL):
    path: str
    template = "there is a file {path} already"
    advice = "name another one with --output"


@dataclass(frozen=True, slots=True)
class Gathered:
    """Files of the archive, and why others are not in it."""

    files: dict[str, bytes] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def bundle(root: Path, output: Path | None, as_json: bool) -> None:
    """Raises NoStoreHere, BundleExists, OSError where the archive cannot be written."""
    store = Store(root.resolve())
    if not store.commitlog.is_dir():
        raise NoStoreHere(str(store.root))
    path = (output or Path(f"towline-debug-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")).absolute()
    if path.exists():
        raise BundleExists(str(path))
    gathered = _gather(store)
    _write(path, gathered.files)
    sizes = {name: len(data) for name, data in gathered.files.items()}
    result = {"file": path, "bytes": path.stat().st_size, "files": sizes, "left_out": gathered.left_out}
    show(result, as_json, lambda console: _render(console, result))


def _gather(store: Store) -> Gathered:
    """Whatever there is. A part that cannot be had is left out with its reason, for that is what broken nodes have."""
    gathered = Gathered()
    redaction = Redaction(_known_secrets(store, gathered.left_out))
    parts = _parts(store, gathered.left_out)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        task = progress.add_task("", total=len(parts))
        for name, made in parts.items():
            progress.update(task, description=name)
            try:
                gathered.files[name] = _redacted(redaction, made())
            except Exception as error:
                gathered.left_out[name] = redaction.text(_why(error))
            progress.advance(task)
    gathered.files["left_out.json"] = _json(gathered.left_out)
    return gathered


def _parts(store: Store, left_out: dict[str, str]) -> Mapping[str, Callable[[], Any]]:
    """Name in the archive -> what gives a text or a JSON document."""
    why = _no_load(store)
    if why:
        left_out["doctor.json: the speed of the disk, and ports"] = why
    examine = looks_at if why else checks_of
    parts: dict[str, Callable[[], Any]] = {
        "versions.json": lambda: versions() | {"packages": packages()},
        "status.json": partial(read_status, store.root),
        "doctor.json": lambda: {"checks": [asdict(check) for check in examine(store.root)]},
    }
    of_run = (store.settings, store.recovery, store.node, store.link, store.order_result)
    texts = [store.kept_settings] if store.kept_settings.exists() else []
    for path in (*of_run, store.identity, store.role, store.promise, store.in_sync, store.truncate):
        if path.exists() or path in (store.settings, store.recovery):
            parts[str(path.relative_to(store.root))] = partial(_document, path)
    for path in sorted(store.run.glob("*.failure")):
        parts[str(path.relative_to(store.root))] = partial(_document, path)
    for path in (*texts, *sorted(store.run.glob("*.log*"))):
        parts[str(path.relative_to(store.root))] = partial(_tail, path)
    return parts


def _no_load(store: Store) -> str:
    """Why the disk is not to be written to, to see how fast it is; "" where it may be."""
    try:
        if store_is_held(store.lock):
            return "a node runs on the store"
    except OSError as error:
        return f"a node may run on the store: {_why(error)}"
    return "" if has_room(store.root) else "the disk has little room"


def _document(path: Path) -> Any:
    """As text where it is damaged."""
    text = path.read_text(encoding="utf-8", errors="backslashreplace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _tail(path: Path) -> str:
    """The end of a log, from the beginning of a line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_TAIL))
        data = file.read(LOG_TAIL)
    if size > LOG_TAIL:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "backslashreplace")


def _redacted(redaction: Redaction, part: Any) -> bytes:
    if isinstance(part, str):
        return redaction.text(part).encode("utf-8", "backslashreplace")
    return _json(redaction.document(part))


def _json(document: Any) -> bytes:
    return orjson.dumps(document, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def _known_secrets(store: Store, left_out: dict[str, str]) -> set[str]:
    """What this node and this user hold: the key ring, the key file of the environment, the secret of the processes."""
    found: list[dict[str, str]] = []

    def look(what: object, read: Callable[[], dict[str, str]]) -> None:
        try:
            found.append(read())
        except FileNotFoundError:
            return
        except Exception as error:
            left_out[f"secrets of {what}"] = _unknown(error)

    of_the_certificate: set[str] = set()
    keys: list[Path] = [Path(os.environ[ENVIRONMENT])] if ENVIRONMENT in os.environ else []
    try:
        ring = json.loads(store.settings.read_text(encoding="utf-8"))["keys_dir"]
        if ring:
            keys += sorted(Path(ring).rglob("*.json"))
            of_the_certificate = private_lines(certificate_of(Path(ring)))
    except (OSError, ValueError, LookupError, TypeError) as error:
        left_out["secrets of keys_dir"] = _unknown(error)
    for path in keys:
        look(path, partial(key_in, path))
    look("the processes", lambda: {"secret": runtime_in_use(store.root).secret.read_text(encoding="ascii")})
    return secrets_of(found) | of_the_certificate


def _unknown(error: Exception) -> str:
    return f"not known, so taken out by name and form alone: {_why(error)}"


def _why(error: Exception) -> str:
    return error.describe() if isinstance(error, TowlineError) else f"{type(error).__name__}: {error}"


def _write(path: Path, files: Mapping[str, bytes]) -> None:
    """For its owner alone; whole or not at all. Raises BundleExists, OSError."""
    now = int(time.time())
    top = path.name.removesuffix(".gz").removesuffix(".tgz").removesuffix(".tar")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    except FileExistsError:
        raise BundleExists(str(path)) from None
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), now, _MODE
                archive.addfile(entry, io.BytesIO(data))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _render(console: Console, result: dict[str, Any]) -> None:
    made = table("in the archive", "#size")
    for name, size in result["files"].items():
        add_row(made, name, sized(size))
    console.print(made)
    for name, why in result["left_out"].items():
        console.print(f"left out: {name}: {why}", markup=False, soft_wrap=True)
    text = f"{result['file']}: {sized(result['bytes'])}, without secrets; look through it before you hand it on"
    console.print(text, markup=False, soft_wrap=True)

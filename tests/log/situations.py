"""How each situation of the recovery table comes about on a sound store."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from towline.format.files.checkpoint import Checkpoint
from towline.format.files.durable import Durable
from towline.format.files.durable_slots import SLOT_SIZE
from towline.format.files.epochs import Epoch
from towline.format.record import record, skipped
from towline.log.recovery.verdicts import Case
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.epoch_file import EpochFile
from towline.log.state.in_sync_file import InSyncFile, InSyncRecord, mask_of
from towline.log.state.role_file import MASTER, Role, save_role
from towline.log.state.truncation_file import Truncation, TruncationFile
from towline.node.roles.promise import Promise, save_promise

from .stores import NOON, QUEUE_FILE, SEGMENT, SLOTS, StoreMaker

MIDDLE = 150  # the record at which the durable offset stands where something is torn


def poke(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def durable(maker: StoreMaker, number: int = MIDDLE, **other: int) -> None:
    """A store that was killed: durable to this record, dispatched as far."""
    at = maker.records[number].at
    state = Durable(flushed=at, segment_base=at - at % SEGMENT, queues_durable=at)
    file = DurableFile(maker.root)
    file.save(replace(state, **other))
    file.close()
    (maker.root / "abort").write_text("1")


def queue_dir(maker: StoreMaker, topic: str = "TopicA", queue_id: int = 0) -> Path:
    return maker.store.consumequeue / topic / str(queue_id)


def entry(maker: StoreMaker, number: int) -> tuple[Path, int]:
    at = number * 20
    return queue_dir(maker) / f"{at - at % QUEUE_FILE:020d}", at % QUEUE_FILE


def count_of(maker: StoreMaker) -> int:
    return sum((one.topic, one.queue_id) == ("TopicA", 0) for one in maker.records)


def index_files(maker: StoreMaker) -> list[Path]:
    return sorted(maker.store.index.iterdir())


def empty(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


# --- how each situation comes about


def staged(maker: StoreMaker) -> None:
    maker.store.staging.mkdir()
    (maker.store.staging / "next").write_bytes(bytes(100))


def no_identity(maker: StoreMaker) -> None:
    (maker.root / "identity.json").unlink()


def broken_identity(maker: StoreMaker) -> None:
    path = maker.root / "identity.json"
    path.write_text(path.read_text().replace('"cluster": "D', '"cluster": "E'))


def torn_config(maker: StoreMaker) -> None:
    path = maker.store.config / "topics.json"
    path.write_bytes(path.read_bytes()[:40])


def lost_config(maker: StoreMaker) -> None:
    torn_config(maker)
    (maker.store.config / "topics.json.bak").write_text("{")


def no_epochs(maker: StoreMaker) -> None:
    maker.store.epochs.unlink(missing_ok=True)


def epochs_of_one_name(maker: StoreMaker) -> None:
    EpochFile(maker.store).save((Epoch(257, 0), Epoch(513, SEGMENT)))
    maker.store.epochs.rename(maker.store.epochs.with_name("epochFileCheckpoint.bak"))


def edited_epochs(maker: StoreMaker) -> None:
    EpochFile(maker.store).save((Epoch(257, 0), Epoch(513, SEGMENT)))
    maker.store.epochs.write_text(maker.store.epochs.read_text().replace("513-", "512-"))


def epochs_behind_the_end(maker: StoreMaker) -> None:
    EpochFile(maker.store).save((Epoch(257, 0), Epoch(513, maker.end + 252)))


def in_sync(maker: StoreMaker) -> Path:
    InSyncFile(maker.store).save(InSyncRecord(257, 3, 1, mask_of([0, 1])))
    return maker.store.in_sync


def promise(maker: StoreMaker) -> Path:
    save_promise(maker.store, Promise(513, 1))
    return maker.store.promise


def flip(path: Path) -> None:
    """One bit of the first number."""
    data = bytearray(path.read_bytes())
    data[data.index(b":") + 1] ^= 1
    path.write_bytes(data)


def copy_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def torn_set(maker: StoreMaker) -> None:
    flip(in_sync(maker))


def lost_set(maker: StoreMaker) -> None:
    torn_set(maker)
    flip(copy_of(maker.store.in_sync))


def torn_promise(maker: StoreMaker) -> None:
    flip(copy_of(promise(maker)))


def lost_promise(maker: StoreMaker) -> None:
    torn_promise(maker)
    flip(maker.store.promise)


def truncation(maker: StoreMaker, **other: Any) -> None:
    """The master lacks the last hundred records, of which none was confirmed."""
    point = maker.records[-100].at
    maker.durable(maker.end, queues=point)
    CheckpointFile(maker.root).save(Checkpoint())
    facts = {"point": point, "end": maker.end, "epoch": 257, "node": 1, "master": 2, "why": "why", "time": NOON}
    TruncationFile(maker.store).save(Truncation(**(facts | other)))


def torn_truncation(maker: StoreMaker) -> None:
    truncation(maker)
    poke(maker.store.truncate, 20, b"9")


def truncation_of_what_was_confirmed(maker: StoreMaker) -> None:
    truncation(maker, point=maker.records[-101].at)


def torn_role(maker: StoreMaker) -> None:
    for number in (1, 2):  # the second one keeps the first as `.bak`
        save_role(maker.store, Role(MASTER, 256 * number + 1, "promoted", 1))
    for path in (maker.store.role, copy_of(maker.store.role)):
        path.write_bytes(path.read_bytes()[:20])


def strange_role(maker: StoreMaker) -> None:
    save_role(maker.store, Role("observer", 257, "", 1))


def nothing(maker: StoreMaker) -> None:
    pass


def abort(maker: StoreMaker) -> None:
    (maker.root / "abort").write_text("1")


def no_durable(maker: StoreMaker) -> None:
    (maker.root / "durable").unlink()


def torn_slot(maker: StoreMaker) -> None:
    maker.durable(maker.end, queues=maker.end)
    maker.durable(maker.end - 1, queues=maker.end - 1)  # taken back: both slots hold it
    maker.durable(maker.end, queues=maker.end)
    data = (maker.root / "durable").read_bytes()
    newest = max((0, SLOT_SIZE), key=lambda at: data[at : at + 8])
    poke(maker.root / "durable", SLOT_SIZE - newest + 20, b"\x99")


def no_slot(maker: StoreMaker) -> None:
    (maker.root / "durable").write_bytes(b"garbage" * 10)


def failed_sync(maker: StoreMaker) -> None:
    durable(maker, MIDDLE, sync_failed=True)


def no_checkpoint(maker: StoreMaker) -> None:
    (maker.root / "checkpoint").unlink()


def broken_checkpoint(maker: StoreMaker) -> None:
    poke(maker.root / "checkpoint", 3, b"\x01")


def foreign(maker: StoreMaker) -> None:
    (maker.store.commitlog / "notes").write_text("hello")


def other_size(maker: StoreMaker) -> None:
    maker.path(SEGMENT).write_bytes(bytes(100))


def empty_last(maker: StoreMaker) -> None:
    maker.path(3 * SEGMENT).touch()


def spares(maker: StoreMaker) -> None:
    for number in (3, 4, 5):
        maker.write(number * SEGMENT, b"\0")


def missing_below(maker: StoreMaker) -> None:
    maker.path(SEGMENT).unlink()


def missing_behind(maker: StoreMaker) -> None:
    durable(maker, 100)
    maker.path(SEGMENT).unlink()


def min_published(maker: StoreMaker) -> None:
    durable(maker, 299, log_min=SEGMENT)


def min_unrecorded(maker: StoreMaker) -> None:
    start_missing(maker)
    poke(maker.root / "checkpoint", 0, (NOON + 298).to_bytes(8, "big"))


def start_missing(maker: StoreMaker) -> None:
    durable(maker, 299)
    maker.path(0).unlink()


def corrupt(maker: StoreMaker) -> None:
    maker.write(maker.records[100].at + 300, b"\xff")
    durable(maker)
    maker.write(maker.records[140].at + 300, b"\xff")


def corrupt_size(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.records[140].at + 1, b"\x01")


def corrupt_blank(maker: StoreMaker) -> None:
    durable(maker, 140, flushed=SEGMENT, segment_base=SEGMENT)
    maker.write(maker.blanks[0] + 4, b"\0")


def corrupt_closed(maker: StoreMaker) -> None:
    no_durable(maker)
    maker.write(maker.records[290].at + 300, b"\xff")


def torn(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.records[MIDDLE].at + 300, b"\xff")


def torn_size(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.records[200].at + 1, b"\x01")


def torn_blank(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.blanks[1] + 4, b"\0")


def torn_on_slave(maker: StoreMaker) -> None:
    stored = maker.records[160]
    durable(maker, flushed=stored.at + 100)
    maker.zero_from(stored.at + 100)


def stale(maker: StoreMaker) -> None:
    """A record of an earlier end that stands where the next of its size would end, right in its place."""
    lost, cut = maker.records[201], maker.records[200]
    durable(maker, 200)
    for path in maker.store.commitlog.iterdir():
        if int(path.name) > lost.at:
            path.unlink()
    maker.write(cut.at, bytes(cut.end - cut.at))
    maker.write(lost.at, lost.data)
    assert record.decode(lost.data).physical_offset == lost.at


def properties(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.records[140].end - 3, b"\0")


def foreign_crc(maker: StoreMaker) -> None:
    maker.with_crc = True
    maker.copy_crc(maker.append(b"received"), maker.append(b"sent on"))
    durable(maker)


def version_2(maker: StoreMaker) -> None:
    maker.append(b"long", "%RETRY%" + "g" * 130)
    durable(maker)


def stepped_over(maker: StoreMaker) -> None:
    stored = maker.records[200]
    durable(maker)
    lost = skipped.Lost(stored.topic.encode(), stored.queue_id, stored.queue_offset, 1)
    maker.write(stored.at, skipped.encode(507, stored.at, lost, NOON + 199, with_crc=False))


def no_queues(maker: StoreMaker) -> None:
    empty(maker.store.consumequeue)


def behind_the_mark(maker: StoreMaker) -> None:
    durable(maker)


def file_between(maker: StoreMaker) -> None:
    sorted(queue_dir(maker).iterdir())[1].unlink()


def queue_gone(maker: StoreMaker) -> None:
    empty(queue_dir(maker))
    queue_dir(maker).rmdir()


def garbage_at_the_end(maker: StoreMaker) -> None:
    path, at = entry(maker, count_of(maker) - 3)
    poke(path, at, (1 << 40).to_bytes(8, "big"))


def hole(maker: StoreMaker) -> None:
    path, at = entry(maker, count_of(maker) - 3)
    poke(path, at, bytes(20))


def damaged_inside(maker: StoreMaker) -> None:
    path, at = entry(maker, 5)
    poke(path, at + 12, b"\x77")


def queue_size(maker: StoreMaker) -> None:
    path, _ = entry(maker, 5)
    path.write_bytes(path.read_bytes()[:-20])


def file_without_length(maker: StoreMaker) -> None:
    count = count_of(maker)
    (queue_dir(maker) / f"{(count * 20 // QUEUE_FILE + 1) * QUEUE_FILE:020d}").touch()


def file_too_many(maker: StoreMaker) -> None:
    path, _ = entry(maker, 1000)
    path.write_bytes(bytes(QUEUE_FILE))


def misnamed_queue_file(maker: StoreMaker) -> None:
    (queue_dir(maker) / f"{17:020d}").write_bytes(bytes(QUEUE_FILE))


def foreign_in_queues(maker: StoreMaker) -> None:
    (maker.store.consumequeue / "TopicA" / "notes").mkdir()
    (queue_dir(maker) / "notes").write_text("hello")


def no_index(maker: StoreMaker) -> None:
    empty(maker.store.index)


def index_end(maker: StoreMaker) -> None:
    index_files(maker)[-1].unlink()


def index_inside(maker: StoreMaker) -> None:
    index_files(maker)[1].unlink()


def index_header(maker: StoreMaker) -> None:
    poke(index_files(maker)[2], 36, (5).to_bytes(4, "big"))


def index_chain(maker: StoreMaker) -> None:
    poke(index_files(maker)[-1], 40, (9).to_bytes(4, "big") * SLOTS)


def index_size(maker: StoreMaker) -> None:
    path = index_files(maker)[0]
    path.write_bytes(path.read_bytes()[:-1])


def index_unfinished(maker: StoreMaker) -> None:
    (maker.store.index / "20260101000000000.new").write_bytes(bytes(100))


def index_foreign(maker: StoreMaker) -> None:
    (maker.store.index / "garbage").write_bytes(bytes(100))


PROVOKED: dict[Case, Callable[[StoreMaker], None]] = {
    Case.STAGED: staged,
    Case.CONFIG_TORN: torn_config,
    Case.EPOCHS_ABSENT: no_epochs,
    Case.EPOCHS_TORN: epochs_of_one_name,
    Case.EPOCHS_BROKEN: edited_epochs,
    Case.EPOCHS_AHEAD: epochs_behind_the_end,
    Case.IN_SYNC_TORN: torn_set,
    Case.IN_SYNC_LOST: lost_set,
    Case.PROMISE_TORN: torn_promise,
    Case.PROMISE_LOST: lost_promise,
    Case.TRUNCATED: truncation,
    Case.TRUNCATION_BROKEN: torn_truncation,
    Case.TRUNCATION_REFUSED: truncation_of_what_was_confirmed,
    Case.STOPPED: nothing,
    Case.CRASHED: abort,
    Case.NO_DURABLE: no_durable,
    Case.DURABLE_SLOT: torn_slot,
    Case.DURABLE_LOST: no_slot,
    Case.SYNC_FAILED: failed_sync,
    Case.NO_CHECKPOINT: no_checkpoint,
    Case.CHECKPOINT_BROKEN: broken_checkpoint,
    Case.FOREIGN: foreign,
    Case.SEGMENT_SIZE: other_size,
    Case.EMPTY_LAST: empty_last,
    Case.SPARE_SEGMENTS: spares,
    Case.SEGMENT_MISSING: missing_below,
    Case.SEGMENT_LOST: missing_behind,
    Case.MIN_PUBLISHED: min_published,
    Case.MIN_UNRECORDED: min_unrecorded,
    Case.START_MISSING: start_missing,
    Case.CORRUPT_RECORD: corrupt,
    Case.CORRUPT_SIZE: corrupt_size,
    Case.CORRUPT_BLANK: corrupt_blank,
    Case.CORRUPT_CLOSED: corrupt_closed,
    Case.TORN_RECORD: torn,
    Case.TORN_SIZE: torn_size,
    Case.TORN_BLANK: torn_blank,
    Case.TORN_ON_SLAVE: torn_on_slave,
    Case.STALE_BYTES: stale,
    Case.QUEUES_ABSENT: no_queues,
    Case.QUEUE_AHEAD: behind_the_mark,
    Case.QUEUE_FILE_MISSING: file_between,
    Case.QUEUE_END_MISSING: queue_gone,
    Case.QUEUE_GARBAGE: garbage_at_the_end,
    Case.QUEUE_HOLE: hole,
    Case.QUEUE_SIZE: queue_size,
    Case.QUEUE_EMPTY_FILE: file_without_length,
    Case.QUEUE_MISNAMED: misnamed_queue_file,
    Case.QUEUE_FOREIGN: foreign_in_queues,
    Case.INDEX_ABSENT: no_index,
    Case.INDEX_AHEAD: behind_the_mark,
    Case.INDEX_END_MISSING: index_end,
    Case.INDEX_HEADER: index_header,
    Case.INDEX_SIZE: index_size,
    Case.INDEX_UNFINISHED: index_unfinished,
    Case.INDEX_FOREIGN: index_foreign,
}

# What a start does not look for, and goes on; with whether `store verify` names it.
PASSED_OVER: dict[str, tuple[Callable[[StoreMaker], None], bool]] = {
    "a store without an identity": (no_identity, False),
    "properties of a durable record that do not parse": (properties, True),
    "a property CRC of another record, on which nobody insists": (foreign_crc, False),
    "records of version 2": (version_2, False),
    "a record that stands for damaged ones": (stepped_over, False),
    "a damaged entry far from its queue's end": (damaged_inside, True),
    "a file behind a queue's end": (file_too_many, False),
    "an index file missing between others": (index_inside, True),
    "a damaged slot of the index": (index_chain, False),
}
# What others than recovery refuse: the supervisor, and the owner of a file of config/. All name `store repair`.
REFUSED_BY_OWNERS: dict[str, Callable[[StoreMaker], None]] = {
    "a broken identity": broken_identity,
    "a file of config/ of which neither generation can be read": lost_config,
    "a role of which neither generation can be read": torn_role,
    "a role that is none": strange_role,
}

"""Staged segments become a part of the log, all of them or none, whatever is killed meanwhile.

`begun.json` stands there from before the first step until after the last: meanwhile no node starts on the store. Each
step may be done again. Until `durable` says the new end, all of it can be taken back.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from towline.format.files.durable import Durable
from towline.format.files.topics import DataVersion, TopicConfig, TopicTable, topics_content
from towline.format.record import blank
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import (
    make_directory,
    publish,
    segment_base,
    segment_name,
    sync_directory,
    sync_file,
    zero_range,
)
from towline.log.recovery.recovery import RecoverySettings, recover
from towline.log.state.durable_file import DurableFile
from towline.log.state.kafka_import import clear_ended
from towline.log.state.topics_file import NAME, TopicsConfig, read_table
from towline.places import Store
from towline.runtime.failpoints import ARMED, reach

from .import_errors import PublishBegun, StagedMissing
from .import_plan import Plan
from .import_units import staged_segment


def publish_import(store: Store, plan: Plan, settings: RecoverySettings, *, sole: bool) -> None:
    """Goes on where it was broken off. A `sole` master confirms what it writes without its slaves.

    Raises StagedMissing, DiskFull, SyncFailed, StoreNotWritable.
    """
    _begin(store, plan)
    _check_staged(store, plan)
    _link(store, plan)
    _reach("linked")
    _end_segment(store, plan)
    _reach("ended")
    _promise(store, plan)
    _reach("promised")
    _add_topics(store, plan)
    _reach("topics")
    recover(store, settings, sole=sole)
    _reach("recovered")
    remove_staging(store)


def abandon_import(store: Store, plan: Plan | None) -> None:
    """Takes away what an import left, also of segments that it had put into the log. Raises PublishBegun."""
    if store.kafka_import_begun.exists() and plan is not None:
        durable = DurableFile(store.root).load()
        if durable is not None and durable.flushed > plan.end:
            raise PublishBegun(str(store.root), plan.source, plan.choices.options())
        for path in store.commitlog.iterdir():
            base = segment_base(path.name)
            if base is not None and base >= plan.base:
                path.unlink()
                _reach("unlinked")
        sync_directory(store.commitlog)
        _take_blank_back(store, plan)
    remove_staging(store)


def remove_staging(store: Store) -> None:
    """At one stroke: a plan without its marker, or a marker without its plan, would say what is not so."""
    clear_ended(store)
    store.kafka_import.rename(store.kafka_import_ended)
    sync_directory(store.root)
    _reach("closed")
    clear_ended(store)


def _reach(step: str) -> None:
    if ARMED:
        reach(f"kafka_import.{step}")


def _begin(store: Store, plan: Plan) -> None:
    if not store.kafka_import_begun.exists():
        ConfigFile(store.kafka_import_begun).save({"source": plan.source, "options": plan.choices.options()})
    _reach("begun")


def _segments(store: Store, plan: Plan) -> Iterator[tuple[Path, Path]]:
    """Where each segment is staged, and where it stands in the log."""
    for unit in plan.units:
        for number in range(unit.segments):
            staged = staged_segment(store.kafka_import, unit, plan.shape, number)
            yield staged, store.commitlog / staged.name


def _check_staged(store: Store, plan: Plan) -> None:
    """Some are gone where one could not be linked, or a call that took the import away was broken off."""
    for staged, target in _segments(store, plan):
        if not (staged.exists() or target.exists()):
            raise StagedMissing(str(store.root), plan.source, plan.choices.options(), staged.name)


def _link(store: Store, plan: Plan) -> None:
    """Where spare segments stand, which hold only zeros, they go first."""
    make_directory(store.commitlog)
    for staged, target in _segments(store, plan):
        if not staged.exists():
            continue  # it was linked before
        if target.exists() and not target.samefile(staged):
            target.unlink()
        publish(staged, target)
        _reach("segment")
    _drop_spares(store, plan)


def _drop_spares(store: Store, plan: Plan) -> None:
    behind = plan.base + plan.segments * plan.shape.segment_size
    for path in store.commitlog.iterdir():
        base = segment_base(path.name)
        if base is not None and base >= behind:
            path.unlink()
    sync_directory(store.commitlog)


def _end_segment(store: Store, plan: Plan) -> None:
    """A blank behind the log's old end, so that it goes on in the first segment of the import."""
    size = plan.shape.segment_size
    within = plan.end % size
    if within:
        path = store.commitlog / segment_name(plan.end - within)
        _write(path, within, blank.encode(size - within))


def _take_blank_back(store: Store, plan: Plan) -> None:
    within = plan.end % plan.shape.segment_size
    path = store.commitlog / segment_name(plan.end - within)
    if within and path.exists():
        with path.open("r+b") as file:
            zero_range(file.fileno(), within, within + blank.SIZE)
        sync_file(path)


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    sync_file(path)


def _promise(store: Store, plan: Plan) -> None:
    """The log ends behind the import; its queues and index are still to be derived."""
    file = DurableFile(store.root)
    known, end = file.load(), plan.new_end
    if known is None:  # a new store, or a real broker's
        known = Durable(flushed=plan.log_min, queues_durable=plan.log_min, log_min=plan.log_min)
    if known.flushed < end:
        file.save(replace(known, flushed=end, segment_base=end - end % plan.shape.segment_size))
    file.close()


def _add_topics(store: Store, plan: Plan) -> None:
    table = read_table(store)
    topics = dict(table.topics)
    for name, queues in plan.topics().items():
        known = topics.get(name, TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues))
        read, write = max(known.read_queue_nums, queues), max(known.write_queue_nums, queues)
        topics[name] = replace(known, read_queue_nums=read, write_queue_nums=write)
    if topics == dict(table.topics):
        return
    version = table.data_version
    following = DataVersion(
        counter=version.counter + 1,
        state_version=version.state_version,
        timestamp=max(plan.store_timestamp, version.timestamp),
    )
    make_directory(store.config)
    content = topics_content(TopicTable(topics=topics, data_version=following, deleted=table.deleted))
    TopicsConfig(store.config / NAME).save(content)

"""Which partitions of a log directory are imported, under which names, and whether they are fit for it."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from towline.errors import IllegalTopic
from towline.format.files.topics import TopicTable, check_topic
from towline.kafka.errors import TornLog, in_file
from towline.kafka.log import epochs as leader_epochs
from towline.kafka.log.checking import offset_index_fault
from towline.kafka.log.log_directory import LogDirectory, held
from towline.kafka.log.partition import Partition
from towline.kafka.log.scan import is_transactional
from towline.limits import QUEUES_MAX, TOPIC_QUEUES_MAX

from .import_errors import (
    AbortedTransactions,
    EpochsDoNotFit,
    NameRefused,
    NoSuchTopic,
    NothingToImport,
    OpenTransaction,
    TooManyQueuesThere,
    TopicThere,
)
from .import_plan import Choices, Part

_RENAME: Final = re.compile(r"([^=]+)=([^=]+)")


@contextmanager
def source_held(root: Path) -> Iterator[LogDirectory]:
    """The directory, on which no broker starts meanwhile. Raises LogInUse, NoLogDirectory."""
    directory = LogDirectory(root)
    with ExitStack() as stack:
        with suppress(OSError):  # a copy on a medium that cannot be written: no broker starts there
            stack.enter_context(held(root))
        yield directory


def parts_of(directory: LogDirectory, choices: Choices, *, dots: bool) -> tuple[Part, ...]:
    """In the order of topics and numbers. Raises what stands in `import_errors`, MalformedLog, TornLog."""
    renames = _renames(choices)
    cut = choices.torn == "cut"
    found = []
    for partition in directory.partitions():
        if choices.topics and partition.topic not in choices.topics:
            continue
        name = renames.get(partition.topic, partition.topic)
        try:
            check_topic(name, dots=dots)
        except IllegalTopic as error:
            raise NameRefused(str(directory.root), partition.topic, error.problem) from None
        found.append(_part(partition, name, choices, torn=cut and partition.torn() is not None))
    missing = sorted((set(choices.topics) | set(renames)) - {part.source for part in found})
    if missing:
        raise NoSuchTopic(str(directory.root), missing[0])
    if not found:
        raise NothingToImport(str(directory.root))
    _check_names(directory, found)
    return tuple(found)


def check_room(store: str, parts: tuple[Part, ...], table: TopicTable, queues: Mapping[str, int]) -> None:
    """Whether the store takes these topics; `queues` are those of its log, by topic how many. Raises TopicThere,
    TooManyQueuesThere."""
    sizes = {part.topic: 0 for part in parts}
    for part in parts:
        sizes[part.topic] = max(sizes[part.topic], part.number + 1)
    for topic, count in sizes.items():
        if topic in queues:
            raise TopicThere(store, topic, "it has messages")
        if topic in table.deleted:
            raise TopicThere(store, topic, "it was deleted, and numbers of its queues are not given again")
        if count > TOPIC_QUEUES_MAX:
            raise TooManyQueuesThere(store, count, TOPIC_QUEUES_MAX)
    there = {name: max(each.read_queue_nums, each.write_queue_nums) for name, each in table.topics.items()}
    names = there.keys() | queues.keys() | sizes.keys()
    total = sum(max(known.get(name, 0) for known in (there, queues, sizes)) for name in names)
    if total > QUEUES_MAX:
        raise TooManyQueuesThere(store, total, QUEUES_MAX)


def _renames(choices: Choices) -> dict[str, str]:
    found = {}
    for text in choices.renames:
        names = _RENAME.fullmatch(text)
        if names is None:
            raise NameRefused("--rename", text, "it is not OLD=NEW")
        found[names[1]] = names[2]
    return found


def _check_names(directory: LogDirectory, parts: list[Part]) -> None:
    """Two topics of one name would be one."""
    sources: dict[str, str] = {}
    for part in parts:
        other = sources.setdefault(part.topic, part.source)
        if other != part.source:
            raise NameRefused(str(directory.root), part.source, f"topic {other!r} has the name {part.topic!r} already")


def _part(partition: Partition, name: str, choices: Choices, *, torn: bool) -> Part:
    if torn:
        partition = Partition(partition.directory, partition.start, cut_torn=True)
    try:
        end = partition.end
        batches_end, transactional = _looked_through(partition, end, torn=torn)
    except TornLog as error:
        error.add_note("or add `--torn cut`, which leaves that batch out")
        raise
    stable = _stable_end(partition, choices, batches_end) if transactional else batches_end
    left_open = max(batches_end - max(stable, partition.start), 0)
    return Part(
        directory=str(partition.directory.resolve()),
        source=partition.topic,
        topic=name,
        number=partition.number,
        log_start=partition.start,
        start=partition.start,
        end=max(stable, partition.start) if left_open else end,
        size=sum(segment.size for segment in partition.segments),
        torn=torn,
        transactional=transactional,
        left_open=left_open,
    )


def _stable_end(partition: Partition, choices: Choices, batches_end: int) -> int:
    """Where a reader of what is committed stops. Raises AbortedTransactions, OpenTransaction."""
    path, transactions = str(partition.directory), partition.transactions()
    if choices.aborted == "refuse" and transactions.aborted:
        raise AbortedTransactions(path, len(transactions.aborted), transactions.aborted[0].first_offset)
    stable = min(transactions.last_stable_offset, batches_end)
    if stable < batches_end and choices.open_ == "refuse":
        raise OpenTransaction(path, stable, batches_end)
    return stable


def _looked_through(partition: Partition, end: int, *, torn: bool) -> tuple[int, bool]:
    """The offset behind the last batch, and whether there are transactions, from the heads of all batches.

    An index that knows more than the log says that the log was cut; of a `torn` one it may.

    Raises MalformedLog, and EpochsDoNotFit: a log of which its leader's epochs tell another story was cut, or is to be.
    """
    epochs, path = partition.epochs, str(partition.directory)
    behind = [epoch for epoch in epochs if epoch.start > end]
    if behind:
        said = f"epoch {behind[0].number} begins at offset {behind[0].start}, the log ends at {end}"
        raise EpochsDoNotFit(path, said)
    batches_end, transactional = partition.start, False
    last = partition.segments[-1]
    for segment, data, batches in partition.scans(partition.segments[0].base):
        beyond = None if torn and segment == last else offset_index_fault(segment, batches, len(data))
        if beyond is not None:
            raise beyond
        fault = leader_epochs.check(epochs, batches)
        if fault is not None:
            raise EpochsDoNotFit(path, in_file(str(segment.log), fault).describe())
        if len(batches):
            batches_end = int(batches["last_offset"][-1]) + 1
            transactional = transactional or bool(is_transactional(batches).any())
    return batches_end, transactional

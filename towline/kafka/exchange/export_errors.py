"""What an export to Kafka's files refuses: each names what is wrong, and what to type."""

from towline.errors import Remedy, TowlineError


class ExportRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """Base class of what stands here."""


class NothingToExport(ExportRefused):
    store: str
    why: str
    template = "{store} has nothing to export: {why}"
    advice = "name a store whose node runs or was stopped, and topics that `towline topic list` shows"


class NotDispatched(TowlineError, remedy=Remedy.RETRY):
    """Messages would be missing: they stand in the log, and not in their queues yet."""

    store: str
    at: int
    end: int
    template = "the queues of {store} have the messages of the log up to {at}, and it goes up to {end}"
    advice = "start its node, `towline master start --store STORE`, and run the command again when it has caught up"


class NotExportable(ExportRefused):
    """A topic that is not one of clients, or that has no queues to read."""

    topic: str
    why: str
    template = "topic {topic} cannot be exported: {why}"
    advice = "leave it out: name the others with --topic"


class NeedsName(ExportRefused):
    topic: str
    template = "Kafka does not take {topic!r} as a topic's name"
    advice = "give it another one with --rename OLD=NEW: letters, digits, dots, underscores and hyphens, 249 at most"


class BadChoice(ExportRefused):
    option: str
    problem: str
    template = "the option --{option} cannot be taken as it is: {problem}"
    advice = "`towline kafka export --help` shows how it is given"


class DamagedSource(TowlineError, remedy=Remedy.FIX_DISK):
    """A message that is not as it was stored."""

    path: str
    at: int  # byte in the file
    message: str
    why: str
    template = "{path} byte {at}: {message} is damaged: {why}"
    advice = "take the store of another node or a copy, or add --damaged leave-out, which counts and names what is lost"


class Undelivered(ExportRefused):
    topic: str
    delayed: int
    halves: int
    template = "{topic} has {delayed} delayed messages that are not due and {halves} halves of open transactions"
    advice = "wait until they are delivered, or add --undelivered leave-out: they stay in the store"


class GoneMeanwhile(TowlineError, remedy=Remedy.RETRY):
    partition: str
    why: str
    template = "messages of {partition} were cleaned away during the export: {why}"
    advice = "run the same command again: it goes on, and begins that partition where the store does now"


class TargetTaken(ExportRefused):
    path: str
    why: str
    template = "nothing is exported to {path}: {why}"
    advice = "give a directory that is new or empty; an export that was cut short goes on with the same command"


class TargetNotKnown(ExportRefused):
    """A broker's log directory without a partition that the export would fill."""

    path: str
    partition: str
    create: str  # the broker's command
    template = "{path} has no partition {partition}"
    advice = "start the broker, let it make the topic, stop it, and run the command again"

    def describe(self) -> str:
        return f"{super().describe()}, which a broker makes by `{self.create}`"


class PartitionTaken(ExportRefused):
    path: str
    why: str
    template = "{path} {why}, which an export does not replace"
    advice = "export to a topic without records, by --rename OLD=NEW, or delete the topic there and make it anew"


class OtherTopicId(ExportRefused):
    path: str
    found: str
    given: str
    template = "{path} belongs to the topic with the id {found}, and --topic-id says {given}"
    advice = "leave --topic-id out: the id is taken from the partition's own files"


class OtherExport(ExportRefused):
    path: str
    differs: str
    template = "{path} notes an export that was cut short and was another one: {differs}"
    advice = "end it with the words it began with; or remove that file, and what is exported stays as it is"


class NoRoom(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    wanted: int
    free: int
    template = "{path} has {free:,} bytes free, the export takes {wanted:,} at most"
    advice = "free that much there, name another directory, export fewer topics, or add --compression zstd"


class NotAsExported(TowlineError, remedy=Remedy.FIX_DISK):
    """What was read back is not what was written."""

    path: str
    difference: str
    template = "{path} does not hold what the store does: {difference}"
    advice = "nothing of it was put in place; look at the disk, then run the same command again"

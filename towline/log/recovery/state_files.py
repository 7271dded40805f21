"""Observers of the state files that a start reads: each finds which row of the recovery table applies to its file.

Files that a crash left unfinished, and those of `ha/` that are held in two copies, are put right here too.
"""

from towline.errors import MalformedFile, StoreSyncFailed
from towline.format.files import durable_slots
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.durable import Durable
from towline.log.errors import DurableLost, EpochsLost
from towline.log.files.config_file import BACKUP, from_backups
from towline.log.files.mirrored_file import MirroredFile
from towline.log.files.segment_files import clear_staging
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.epoch_file import EpochFile
from towline.log.state.in_sync_file import InSyncFile
from towline.places import Store

from .verdicts import Case, Decided, Observed, Verdict


def clear_leftovers(store: Store, decided: Decided) -> None:
    """Segments under construction go. The caller is the first process of a start."""
    store.staging.mkdir(exist_ok=True)
    if decided.apply(_observe_staging(store)) is Verdict.DELETE:
        clear_staging(store.staging)


def find_backups(store: Store, decided: Decided) -> list[str]:
    """Names of the files of config/ of which the generation before is read until their owners save them again."""
    names = from_backups(store.config)
    for name in names:
        text = f"config/{name} cannot be read: its generation before is used, config/{name}{BACKUP}"
        decided.apply(Observed(Case.CONFIG_TORN, text))
    return names


def heal_copies(store: Store, decided: Decided) -> list[str]:
    """Makes the promise and the in-sync set whole in both copies; sentences about what was healed. Raises WordLost."""
    before = len(decided.notes)
    for file, torn, lost in (
        (MirroredFile(store.promise), Case.PROMISE_TORN, Case.PROMISE_LOST),
        (InSyncFile(store), Case.IN_SYNC_TORN, Case.IN_SYNC_LOST),
    ):
        if decided.apply(_observe_copies(file, torn, lost)) is Verdict.HEAL:
            file.heal()
    return decided.notes[before:]


def observe_epochs(store: Store) -> Observed | None:
    """The epoch file, before the log's end is known: which master wrote the newest bytes must not be guessed."""
    file = EpochFile(store)
    try:
        file.load()
    except EpochsLost as error:
        return Observed(Case.EPOCHS_BROKEN, error=error)
    if file.is_healed:
        return Observed(Case.EPOCHS_TORN, f"{file.path} is missing: {file.backup.name} takes its place")
    return None if file.path.exists() else Observed(Case.EPOCHS_ABSENT)


def observe_newest_epoch(store: Store, end: int) -> Observed | None:
    """The epoch file, beside a log that ends at `end`. An epoch that begins there was opened, and nothing came."""
    return Observed(Case.EPOCHS_AHEAD) if EpochFile(store).load()[-1].start > end else None


def observe_abort(*, clean: bool) -> Observed:
    """`clean`: the file is absent."""
    return Observed(Case.STOPPED if clean else Case.CRASHED)


def observe_durable(store: Store) -> tuple[Durable | None, Observed | None]:
    """The durable state, None without the file; and the row for it."""
    file = DurableFile(store.root)
    try:
        durable = file.load()
    except MalformedFile as error:
        lost = DurableLost(error.path, error.problem)
        lost.__cause__ = error
        return None, Observed(Case.DURABLE_LOST, error=lost)
    if durable is None:
        return None, Observed(Case.NO_DURABLE)
    if durable.sync_failed:
        return durable, Observed(Case.SYNC_FAILED, error=StoreSyncFailed(str(file.path), durable.flushed))
    if torn := durable_slots.torn(file.path.read_bytes()):
        text = f"{file.path} byte {torn[0][0]}: this slot is not whole, the other one holds"
        return durable, Observed(Case.DURABLE_SLOT, text)
    return durable, None


def observe_checkpoint(store: Store) -> tuple[Checkpoint | None, Observed | None]:
    """The checkpoint, None where it is missing or broken; and the row for it."""
    try:
        checkpoint = CheckpointFile(store.root).load()
    except MalformedFile as error:
        return None, Observed(Case.CHECKPOINT_BROKEN, f"{error.describe()}; it is written anew")
    return checkpoint, Observed(Case.NO_CHECKPOINT) if checkpoint is None else None


def _observe_staging(store: Store) -> Observed | None:
    return Observed(Case.STAGED) if any(path.is_file() for path in store.staging.iterdir()) else None


def _observe_copies(file: MirroredFile | InSyncFile, torn: Case, lost: Case) -> Observed | None:
    try:
        found = file.load()
    except MalformedFile as error:
        return Observed(lost, error=error)
    return None if found is None or file.is_whole else Observed(torn, f"{file.path}: both copies are written anew")

"""`epochFileCheckpoint`: what stands there after a crash between any two names, and what is refused."""

import pytest

from tests.log.sound import mend_all, sound_store
from tests.log.stores import SETTINGS, StoreMaker
from towline.format.files.epochs import IMPLIED, Epoch, encode
from towline.log.errors import EpochPast, EpochsLost, RepairRefused
from towline.log.files import store_files
from towline.log.recovery.recovery import recover
from towline.log.repair.verify import verify
from towline.log.repair.verify_report import Weight
from towline.log.state.epoch_file import EpochFile, open_epoch
from towline.places import Store

ONE, TWO = (Epoch(257, 0),), (Epoch(257, 0), Epoch(513, 4_096))


@pytest.fixture
def file(tmp_path):
    return EpochFile(Store(tmp_path))


def test_a_store_without_the_file_was_written_in_epoch_0(file):
    assert (file.load(), file.is_healed) == (IMPLIED, False)
    assert file.cut(100) == IMPLIED
    assert not file.path.exists()


def test_the_list_before_stays_as_bak(file):
    file.save(ONE)
    assert not file.backup.exists()
    file.save(TWO)
    assert (file.load(), file.backup.read_bytes()) == (TWO, encode(ONE))
    file.save(TWO)
    assert file.backup.read_bytes() == encode(ONE)


class Crash(Exception):
    """The power went."""


@pytest.mark.parametrize("names", range(3))
def test_a_crash_between_two_names_leaves_the_list_before_or_the_new_one(file, monkeypatch, names):
    file.save(ONE)
    done = []

    def sync(path):
        if len(done) == names:
            raise Crash
        done.append(path)

    monkeypatch.setattr(store_files, "sync_directory", sync)
    try:
        file.save(TWO)
    except Crash:
        assert names < 2
    assert file.load() in ((TWO, ONE) if names < 2 else (TWO,))
    assert not file.is_healed


@pytest.mark.parametrize("left", [None, b""], ids=["no name", "a name without bytes"])
def test_what_a_crash_of_a_broker_leaves_is_healed(file, left):
    file.save(ONE)
    file.save(TWO)
    file.path.unlink()
    if left is not None:
        file.path.write_bytes(left)
    assert (file.load(), file.is_healed) == (ONE, True)
    assert file.cut(10) == ONE
    assert (file.path.read_bytes(), file.is_healed) == (encode(ONE), False)


def test_an_edited_file_is_refused_whatever_the_one_before_says(file):
    file.save(ONE)
    file.save(TWO)
    file.path.write_bytes(file.path.read_bytes().replace(b"4096", b"4097"))
    with pytest.raises(EpochsLost, match="do not fit the check"):
        file.load()
    assert file.backup.read_bytes() == encode(ONE)


@pytest.mark.parametrize(
    ("damage", "rule", "weight"),
    [
        pytest.param(lambda data: data.replace(b"4096", b"4097"), "EPOCHS", Weight.DAMAGE, id="edited"),
        pytest.param(lambda data: data[:9], "EPOCHS", Weight.DAMAGE, id="cut short"),
        pytest.param(lambda data: b"", "EPOCHS_TORN", Weight.HEALS, id="a name without bytes"),
        pytest.param(lambda data: data.replace(b"257-0", b"0257-0"), "EPOCHS", Weight.DAMAGE, id="a digit more"),
        pytest.param(lambda data: data.rstrip(b"\n"), "EPOCHS", Weight.DAMAGE, id="a line end less"),
        pytest.param(lambda data: encode((*TWO, Epoch(770, 1 << 30))), "EPOCHS_AHEAD", Weight.HEALS, id="ahead"),
    ],
)
def test_verify_names_what_is_wrong_and_repair_guesses_nothing(tmp_path, damage, rule, weight):
    maker = sound_store(tmp_path)
    file = EpochFile(maker.store)
    file.save(ONE)
    file.save(TWO)
    assert verify(maker.store, SETTINGS).weight is Weight.NOTE
    file.path.write_bytes(damage(file.path.read_bytes()))
    found = verify(maker.store, SETTINGS)
    assert ([row.path for row in found.findings.of(rule)], found.weight) == (["epochFileCheckpoint"], weight)
    if weight is Weight.DAMAGE:
        with pytest.raises(RepairRefused, match="epochFileCheckpoint"):
            mend_all(maker)
    else:
        recover(maker.store, SETTINGS)
        assert verify(maker.store, SETTINGS).weight is Weight.NOTE


def test_an_empty_list_is_never_written(file):
    file.save(ONE)
    file.save(TWO)
    file.save(())
    assert not file.path.exists()
    assert not file.backup.exists()


def test_a_master_opens_an_epoch_where_its_log_ends(tmp_path):
    maker = StoreMaker(tmp_path)
    maker.fill(50)
    maker.dispatch(maker.end)
    maker.durable(maker.end, queues=maker.end)
    recovered = recover(maker.store, SETTINGS)
    assert recovered.epochs == IMPLIED
    assert open_epoch(maker.store, 257, recovered.end) == (*IMPLIED, Epoch(257, maker.end))
    assert recover(maker.store, SETTINGS).epochs == IMPLIED  # nothing was written in it
    open_epoch(maker.store, 513, maker.end)
    maker.fill(10)
    maker.durable(maker.end)
    recovered = recover(maker.store, SETTINGS)
    assert recovered.epochs[-1].number == 513
    with pytest.raises(EpochPast, match="holds bytes of epoch 513"):
        open_epoch(maker.store, 513, maker.end)
    assert open_epoch(maker.store, 514, maker.end)[-1] == Epoch(514, maker.end)

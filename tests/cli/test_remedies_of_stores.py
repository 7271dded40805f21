"""What a running node, a damaged store or a group refuses: the remedy that is named is typed, and it then works."""

import os
from dataclasses import replace

import pytest

from towline.client.group.consumer import GroupConsumer
from towline.log.state.durable_file import DurableFile
from towline.places import Store
from towline.runtime.locks import StoreLock

from .typist import TYPED, Typist, endpoint_of, filled


def begin(typist: Typist) -> str:
    """A node with one message in it. Returns the command that stored it."""
    put = f"towline put orders hello --store {typist.store}"
    typist.works(f"towline master start --store {typist.store}")
    typist.works(put)
    return put


@pytest.mark.parametrize(
    ("refusing", "refused"),
    [("config set broker_permission=4", "put orders more"), ("topic alter orders --perm w", "get orders")],
    ids=["a node that is read-only", "a topic that nobody may read"],
)
def test_what_is_not_permitted_is_permitted_again(typist: Typist, refusing: str, refused: str) -> None:
    begin(typist)
    where = f"--store {typist.store}"
    typist.works(f"towline {refusing} {where}")
    [permitted] = typist.refused(f"towline {refused} {where}")
    typist.works(permitted)
    typist.works(f"towline {refused} {where}")


def test_a_group_that_is_switched_off_is_switched_on(typist: Typist) -> None:
    begin(typist)
    where = f"--store {typist.store}"
    typist.works(f"towline group configure workers --no-consume-enable {where}")
    [switched] = typist.refused(f"towline get orders --follow --group workers {where}")
    typist.works(switched)
    assert typist(f"towline group describe workers {where}").document["settings"]["consumeEnable"] is True


def test_a_group_that_nobody_knows_is_looked_for_in_their_list(typist: Typist) -> None:
    begin(typist)
    [listed] = typist.refused(f"towline group describe workers --store {typist.store}")
    typist.works(listed)


def test_after_a_sync_that_failed_the_log_is_written_anew(typist: Typist) -> None:
    put = begin(typist)
    typist.stop()
    file = DurableFile(typist.store)
    state = file.load()
    assert state is not None
    file.save(replace(state, sync_failed=True))
    file.close()
    start = f"towline master start --store {typist.store}"
    [mended] = typist.refused(start)
    typist.works(mended)
    typist.works(start)
    typist.works(put)


def test_a_byte_of_the_log_that_changed_is_found_and_stepped_over(typist: Typist) -> None:
    put = begin(typist)
    typist.works(put)
    typist.stop()
    segment = typist.store / "commitlog" / f"{0:020}"
    with segment.open("r+b") as file:
        at = file.read(4096).index(b"hello")
        file.seek(at)
        file.write(b"jello")
    verify = f"towline store verify --store {typist.store}"
    found = typist(verify)
    assert found.status == 2
    [repaired] = [TYPED.findall(row["remedy"])[0] for row in found.document["findings"] if "--skip" in row["remedy"]]
    typist.works(repaired)
    typist.works(verify)
    typist.works(f"towline master start --store {typist.store}")
    typist.works(put)


def test_a_job_or_option_that_is_not_there_is_looked_for_in_the_help(typist: Typist) -> None:
    for mistyped in ("towline pipeline verfiy", "towline pipeline verify --stoer here", "towline dve"):
        [helped] = typist.refused(mistyped)
        typist.works(helped)


def test_a_cluster_file_that_is_not_there_is_written(typist: Typist) -> None:
    file = typist.store.parent / "cluster.toml"
    [written] = typist.refused(f"towline cluster status -f {file}")
    typist.works(written, "-f", str(file))
    assert file.is_file()


def test_a_context_that_is_not_there_is_added(typist: Typist) -> None:
    begin(typist)
    listed, added = typist.refused("towline context use there")
    typist.works(listed)
    typist.works(filled(added, NAME="there", ENDPOINT=endpoint_of(typist)))
    typist.works("towline context use there")
    typist.works("towline get orders")


def test_a_keys_directory_that_is_not_there_is_made(typist: Typist) -> None:
    ring = typist.store.parent / "ring"
    [listed, made] = typist.refused(f"towline keys list --dir {ring}")
    assert listed == "towline keys list --dir DIR"
    typist.works(filled(made, NAME="app", DIR=ring, ROLE="producer"))
    typist.works(filled(listed, DIR=ring))


def test_the_jobs_there_are_stand_in_their_list(typist: Typist) -> None:
    listed = typist("towline pipeline list").document
    assert {"verify", "lookup", "archive"} <= {row["job"] for row in listed["jobs"]}


def test_what_groups_refuse_is_looked_up_or_set_by_the_commands_named(typist: Typist) -> None:
    begin(typist)
    where = f"--store {typist.store}"
    typist.works(f"towline group configure workers --consume-enable {where}")
    set_there = typist.refused_once(f"towline get orders --follow --group workers --from 0 {where}", "reset-offset")
    typist.works(filled(set_there, QUEUE=0))
    described = typist.refused_once(f"towline group reset-offset workers orders --queue 99 --to 0 {where}", "describe")
    assert described.startswith("towline topic describe orders ")
    typist.works(described)
    with GroupConsumer(endpoint_of(typist), "workers", {"orders": "*"}, start="first") as member:
        next(iter(member))
        named = typist.refused_once(f"towline group delete workers {where}", "describe")
        assert len(typist(named).document["members"]) == 1
    typist.works(f"towline group delete workers {where}")


def test_a_delay_that_cannot_be_is_one_of_the_levels(typist: Typist) -> None:
    begin(typist)
    late = f"towline put orders later --store {typist.store} --deliver-at"
    refused = typist(late, "+9999d")
    assert refused.document["error"] == "IllegalDelay"
    assert "a delay_level from 1 on, or a deliver_at" in refused.document["remedy"]
    typist.works(late, "+90s")


def test_what_status_and_statistics_advise_is_typed_as_they_say_it(typist: Typist) -> None:
    put, where = begin(typist), f"--store {typist.store}"
    typist.works(f"towline config set broker_permission=4 {where}")
    typist.refused(put)
    status = typist(f"towline master status {where}").document["refused"]["causes"][0]["remedy"]
    stats = typist(f"towline stats {where}").document["refused"]["causes"][0]["remedy"]
    assert status == stats
    [permitted] = TYPED.findall(status)
    typist.works(permitted)
    typist.works(put)


def test_a_store_that_a_command_is_at_work_on_is_waited_for(typist: Typist) -> None:
    start = f"towline master start --store {typist.store}"
    typist.works(start)
    typist.stop()
    working = StoreLock(Store(typist.store).lock)
    refused = typist(start)
    assert refused.document["error"] == "StoreTaken"
    assert "wait until that process has ended" in refused.document["remedy"]
    assert "master stop" not in refused.document["remedy"]
    verify = f"towline store verify --store {typist.store}"
    refused = typist(verify)
    assert (refused.document["error"], str(os.getpid()) in refused.document["sentence"]) == ("HolderSilent", True)
    assert "wait until that process has ended" in refused.document["remedy"]
    working.release()
    typist.works(verify)
    typist.works(start)


def test_what_is_asked_of_the_files_by_a_wrong_name_is_found_in_their_list(typist: Typist) -> None:
    begin(typist)
    where = f"--store {typist.store}"
    for asked in ("queue --topic none", "queue --topic orders --queue 99", "diverged --file none"):
        refused = typist(f"towline inspect {asked} {where}")
        assert refused.document["error"] == "NotInStore"
        [listed] = TYPED.findall(refused.document["remedy"])
        typist.works(listed)

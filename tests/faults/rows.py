"""The fault matrix: each row with the tests and drills that inject its fault. Nothing is injected here."""

from typing import Final

from .plan import Drilled, Row, Tests

_KILLS: Final = "tests/processes/kills"
_DAMAGE: Final = "tests/processes/damage"
_REPLICATION: Final = "tests/processes/replication"
_PORTS: Final = "tests/processes/ports"
_FAILPOINTS: Final = f"{_KILLS}/test_failpoints.py::test_a_kill_at_this_step_loses_nothing"
_PROCESS: Final = f"{_KILLS}/test_kill_processes.py::test_a_killed_process_costs_no_acknowledged_message"
_POOL: Final = f"{_KILLS}/test_kill_with_pool.py"
_APPEND: Final = f"{_KILLS}/test_kill_in_append.py"
_CUT: Final = "tests/soak/test_power_cut.py"
_FLIPS: Final = "tests/log/repair/test_bit_flips.py"
_MANY_FLIPS: Final = {"TOWLINE_FLIPS": "10000"}
_BODIES: Final = f"{_DAMAGE}/test_damaged_bodies.py"
_IDEMPOTENT: Final = "tests/processes/puts/test_idempotent.py"
_SYNC: Final = f"{_DAMAGE}/test_sync_is_real.py"
_SET: Final = f"{_REPLICATION}/test_in_sync_set.py"

KILLS: Final = (
    Row(
        "F1",
        "kill -9 of put",
        "failpoints at every step of an append and its answer, over rings, sockets and deliveries; under load",
        (
            Tests(_FAILPOINTS, only="put. and not reput."),
            Tests(_PROCESS, only="master-put"),
            Tests(f"{_POOL}::test_a_killed_process_costs_no_acknowledged_message", only="put and not reput"),
            Tests(f"{_APPEND}::test_a_kill_at_this_step_of_an_append_loses_nothing"),
            Tests(f"{_APPEND}::test_a_kill_at_every_other_step_of_an_append_loses_nothing", short=None),
            Tests(f"{_IDEMPOTENT}::test_put_is_killed_between_storing_and_answering"),
        ),
        "kills",
    ),
    Row(
        "F2",
        "kill -9 of allocate",
        "failpoints around the link of a segment, in cleaning, where a pool's buffer is given back; under load",
        (
            Tests(_FAILPOINTS, only="allocate."),
            Tests(_PROCESS, only="master-allocate"),
            Tests(f"{_POOL}::test_a_kill_at_this_step_loses_nothing", only="allocate."),
            Tests(f"{_KILLS}/test_kill_cleaning.py::test_a_kill_at_this_step_leaves_a_whole_store", only="allocate."),
        ),
        "kills",
    ),
    Row(
        "F3",
        "kill -9 of flush",
        "failpoints before and after the sync, before FLUSHED moves, in a pool's commit; under load",
        (
            Tests(_FAILPOINTS, only="flush."),
            Tests(_PROCESS, only="flush"),
            Tests(_POOL, only="flush"),
        ),
        "kills",
    ),
    Row(
        "F4",
        "kill -9 of reput",
        "failpoints at every step of queues, index and units; queues and index are compared with a derivation",
        (
            Tests(_FAILPOINTS, only="reput."),
            Tests(_PROCESS, only="reput"),
            Tests(f"{_KILLS}/test_kill_reput.py"),
            Tests(f"{_KILLS}/test_kill_cleaning.py::test_a_kill_at_this_step_leaves_a_whole_store", only="reput."),
            Tests(f"{_DAMAGE}/test_retention.py::test_a_kill_at_each_step_shows_nothing_again"),
        ),
        "kills",
    ),
    Row(
        "F5",
        "kill -9 of a sender or a receiver",
        "failpoints around the slave's append and its acknowledgement; under load; logs are compared byte for byte",
        (
            Tests(_FAILPOINTS, only="receive."),
            Tests(_PROCESS, only="send or receive or follow"),
            Tests(f"{_SET}::test_a_killed_receiver_is_back_in_the_set_with_nothing_lost"),
            Tests(f"{_SET}::test_a_sender_that_is_killed_goes_on_with_the_recorded_set"),
            Tests(
                f"{_REPLICATION}/test_seeding.py::test_a_slave_that_is_killed_while_it_is_seeded_goes_on_where_it_was"
            ),
        ),
        "kills",
    ),
    Row(
        "F6",
        "kill -9 of every process at once, of the supervisor alone, of a start",
        "at random points of a mixed load on one store, the flush types and the pool in turn, now and then a slave",
        (
            Tests(f"{_KILLS}/test_kill_node.py"),
            Tests(f"{_KILLS}/test_kill_supervisor.py"),
            Tests(f"{_POOL}::test_a_killed_node_costs_no_acknowledged_message"),
            Tests(
                "tests/soak/test_crash.py::test_nothing_acknowledged_is_lost_and_every_cut_has_a_reason",
                times=4,
            ),
        ),
        "kills",
    ),
)

DISKS: Final = (
    Row(
        "F7",
        "power cut",
        "the image of an ext4 file system is copied while nobody writes and mounted again: SYNC_FLUSH, ASYNC_FLUSH, a "
        "transient pool, a master, its slave, both",
        (
            Tests(f"{_CUT}::test_a_power_cut_costs_no_more_than_was_said"),
            Tests(f"{_CUT}::test_a_power_cut_of_members_costs_nothing_that_was_acknowledged"),
        ),
        "power cuts",
    ),
    Row(
        "F8",
        "torn and reordered pages",
        "every subset of 9 pages of a tail, each sector of it missing, sectors at random; recovered in process",
        (Tests("tests/log/recovery/test_torn_pages.py"),),
        "states",
    ),
    Row(
        "F9",
        "lost names",
        "names and entries that no sync of a directory kept are taken away after a kill at that sync",
        (
            Tests(f"{_DAMAGE}/test_lost_names.py"),
            Tests(f"{_CUT}::test_what_no_sync_kept_costs_nothing_that_was_promised", short=None),
        ),
        "cuts",
    ),
    Row(
        "F10",
        "a full disk",
        "a small file system is filled under puts, at a stop, at a start, of a slave, of the runtime directory",
        (
            Tests(f"{_DAMAGE}/test_full_disk.py"),
            Tests(f"{_DAMAGE}/test_full_runtime.py"),
            Drilled("disk-full", short=1, whole=5),
        ),
    ),
    Row(
        "F11",
        "an I/O error of a sync",
        "strace lets the first msync of the log, and the fdatasync of a queue, fail with EIO",
        (
            Tests(f"{_SYNC}::test_the_first_failed_sync_ends_acknowledgements_for_good"),
            Tests(f"{_SYNC}::test_a_failed_sync_of_a_queue_outlives_the_flush_process_that_met_it"),
            Tests(f"{_DAMAGE}/test_durable_slots.py::test_a_sector_that_cannot_be_read_any_more_costs_one_slot"),
        ),
        lacks="EIO where the log is read through a mapping, which is a SIGBUS, is injected by nobody",
    ),
    Row(
        "F12",
        "a slow disk",
        "every sync of the master's flush takes 100 ms longer (strace); a sync that does not return",
        (
            Drilled("slow-disk", short=1, whole=5),
            Tests(f"{_KILLS}/test_stalls.py::test_a_sync_that_does_not_return_is_named"),
        ),
        lacks="delays of 1, 10 and 2,000 ms",
    ),
)

NETWORK: Final = (
    Row(
        "F13",
        "partition",
        "the master is cut off from slaves, etcd and one of two producers by iptables in a network namespace, or by a "
        "proxy; half-open; 200 ms more in each direction",
        (
            Drilled("partition", short=2, whole=100),
            Drilled("partition --etcd", short=1, whole=50),
            Drilled("partition --by half-open", short=1, whole=25),
            Drilled("partition --by delay", short=1, whole=25),
        ),
        "partitions",
        lacks="doubled and reordered packets, a link of 1 byte a second",
    ),
    Row(
        "F14",
        "a paused slave",
        "SIGSTOP of every process of a slave, or of its writer, then SIGCONT",
        (
            Drilled("pause-slave", short=1, whole=10),
            Tests(f"{_SET}::test_a_slave_that_stands_still_leaves_before_a_put_times_out_and_comes_back"),
            Tests(f"{_SYNC}::test_with_the_slave_stopped_no_put_is_acknowledged_until_it_goes_on"),
            Tests(f"{_DAMAGE}/test_cleaning.py::test_a_paused_slave_is_waited_for_and_then_told_what_to_do"),
        ),
    ),
    Row(
        "F15",
        "a paused process of a node",
        "SIGSTOP of each process in turn; `status` names it; no acknowledgement that is not kept",
        (
            Tests(f"{_KILLS}/test_stalls.py", only="stopped_process or gone"),
            Tests(f"{_SYNC}::test_with_flush_stopped_no_put_is_acknowledged_until_it_goes_on"),
        ),
    ),
    Row(
        "F16",
        "failover",
        "kill -9 of every process of the master, which etcd or an operator replaces; the old one comes back as a slave",
        (
            Tests("tests/loadtest/test_drills.py::test_five_masters_are_killed"),
            Tests("tests/loadtest/test_drills.py::test_a_hundred_failovers_by_etcd", short=None),
            Tests(f"{_REPLICATION}/test_failover.py"),
            Tests(f"{_IDEMPOTENT}::test_the_master_of_three_nodes_is_killed_again_and_again", short=None),
            Drilled("rejoin-diverged", short=1, whole=10),
        ),
        "failovers",
    ),
    Row(
        "F17",
        "split brain",
        "two nodes are told to be master; a master is paused for longer than its lease, or loses etcd",
        (
            Tests(
                f"{_REPLICATION}/test_promotion.py::TestTwo::test_of_two_that_were_told_to_be_master_the_older_is_fenced"
            ),
            Tests(
                f"{_REPLICATION}/test_failover.py::"
                "test_a_master_that_was_paused_longer_than_its_lease_acknowledges_nothing_wrong"
            ),
            Tests(f"{_REPLICATION}/test_promises.py"),
        ),
    ),
)

STATES: Final = (
    Row(
        "F18",
        "the clock jumps",
        "an hour forth, an hour back, around stops, kills and power cuts",
        (
            Tests(f"{_DAMAGE}/test_clock_back.py"),
            Tests("tests/processes/delays/test_delay_steps.py", only="clock_an_hour or clock_set_back or went_back"),
            Tests("tests/allocate/test_cleaning.py::test_a_clock_that_jumps_makes_nothing_old"),
            Tests("tests/reput/test_retention.py", only="clock_that_jumps"),
        ),
        lacks="a clock that stands still, or is 30 years ahead",
    ),
    Row(
        "F19",
        "flipped bits",
        "a bit at a random place of every kind of file, which `verify` has to name; of bodies under readers of a node",
        (
            Tests(f"{_FLIPS}::test_every_flip_is_named_or_lies_where_nobody_looks", environment=_MANY_FLIPS),
            Tests(f"{_FLIPS}::test_without_insisting_a_flip_in_a_record_that_keeps_its_property_crc_is_named_too"),
            Tests(f"{_BODIES}::test_a_consumer_gets_what_stands_before_then_an_error_and_seeks_behind_it", short=None),
            Tests(f"{_BODIES}::test_a_group_commits_what_stands_before_and_goes_on_when_somebody_seeks", short=None),
            Tests(_BODIES, only="lookups or every_node_has_it or what_a_reader_found or requester"),
            Tests(f"{_DAMAGE}/test_property_crc.py", only="flipped_bit"),
        ),
        "flipped bits",
    ),
    Row(
        "F20",
        "cut, empty, missing, additional and renamed files",
        "every row of the recovery table and every fault that `verify` knows is brought about on a store",
        (
            Tests("tests/log/recovery/test_verdicts.py", only="start"),
            Tests(
                "tests/log/repair/test_repair.py::TestEveryFault::test_is_repaired_so_that_verify_is_content_and_a_node_starts"
            ),
            Tests(f"{_DAMAGE}/test_torn_config.py"),
            Tests(f"{_DAMAGE}/test_derived_after_a_cut.py"),
            Tests(f"{_DAMAGE}/test_copied_segment.py"),
        ),
    ),
    Row(
        "F21",
        "files of another version, store, cluster or size",
        "headers and identities are edited, settings changed; links of other clusters and versions",
        (
            Tests(
                f"{_KILLS}/test_stop.py::test_segments_of_another_size_than_the_settings_say_are_refused_and_left_alone"
            ),
            Tests("tests/log/files/test_store_files.py::TestIdentity"),
            Tests("tests/link/test_link.py::TestGreeting", only="another"),
            Tests(f"{_DAMAGE}/test_transient_pool.py", only="copy or another_program"),
        ),
        lacks="a machine with pages of another size",
    ),
    Row(
        "F22",
        "two nodes on one store",
        "a second start, a process by hand, a program that holds the lock",
        (Tests(f"{_KILLS}/test_stop.py", only="second_node or another_program or by_hand_is or outlives_its_node"),),
    ),
)

PEERS: Final = (
    Row(
        "F23",
        "hostile clients",
        "random bytes, broken frames and requests, cut headers, floods, thousands of connections, who never reads",
        (
            Tests(f"{_PORTS}/test_bad_input.py"),
            Tests(f"{_PORTS}/test_shares.py"),
            Tests("tests/remoting/test_bad_clients.py"),
            Tests("tests/remoting/test_floods.py"),
        ),
    ),
    Row(
        "F24",
        "hostile peers",
        "a slave that acknowledges what it cannot have, or goes back; a master whose frames are forged; other clusters",
        (
            Tests(f"{_REPLICATION}/test_lying_slaves.py"),
            Tests(f"{_REPLICATION}/test_ha_links.py"),
            Tests("tests/slave/test_hostile_metadata.py"),
        ),
    ),
    Row(
        "F25",
        "no descriptors left",
        "send, put and serve may open no more files (prlimit) while connections come; then they may again. remoting "
        "takes no more connections than it has descriptors for",
        (Tests(f"{_PORTS}/test_descriptors.py"),),
        lacks="processes of the disk, which hold what they need from their start on",
    ),
    Row(
        "F26",
        "memory pressure",
        "every process of a node comes into a control group whose memory a load uses up",
        (Tests(f"{_DAMAGE}/test_memory_limit.py"),),
    ),
    Row(
        "F27",
        "segments are deleted under readers and slaves",
        "cleaning all the time under puts, a slow consumer, a slave, and a process that maps the files",
        (Tests(f"{_DAMAGE}/test_cleaning.py", only="deleting or verify or expired"),),
    ),
    Row(
        "F28",
        "upgrade and downgrade",
        "files as an older layout left them, taken over at a start; links of other protocol versions; stores and "
        "groups of the version before go up, and back",
        (
            Tests(f"{_DAMAGE}/test_durable_slots.py", only="taken_over or written_anew"),
            Tests("tests/log/files/test_store_files.py::TestTheDurableOffset", only="older"),
            Tests("tests/link/test_link.py::TestGreeting", only="newer or older"),
            Tests("tests/upgrade/test_kept_stores.py"),
            Tests("tests/upgrade/test_up_and_down.py", short=None),
            Tests("tests/upgrade/test_rolling.py", short=None),
        ),
        lacks="a release: the version before is a commit of the first one, as nothing is released yet",
    ),
    Row(
        "F29",
        "SIGTERM under load, twice, and while a node starts",
        "exit status 0, nothing to recover at the next start, nobody left",
        (Tests(f"{_KILLS}/test_stop.py", only="under_load or while_it_starts"),),
        "stops",
    ),
    Row(
        "F30",
        "random faults for long",
        "processes, slaves, masters killed, paused, parted, by one seed, under load; memory and descriptors of every "
        "process, and files, are compared over time",
        (
            Tests(
                "tests/soak/test_random_faults.py::test_random_faults_lose_nothing_and_nothing_grows",
                short="1 minute",
                whole="30 minutes",
            ),
        ),
        "minutes of random faults",
    ),
)

ROWS: Final = (*KILLS, *DISKS, *NETWORK, *STATES, *PEERS)

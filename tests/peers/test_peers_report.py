"""Ratios, goals and tables of what the systems reached: known answers, no server."""

from dataclasses import replace
from typing import ClassVar

import pytest

from peers.figures import OF_PEERS, six, tables
from peers.goals import GOALS, judge
from peers.harness import beside_behind
from peers.pictures import BARS, LATENCY, OVER_TIME, PAGE, draw
from peers.plan import QUANTILES, Durability, Kind, Replica, Work
from peers.quote import pages, quoted
from peers.ratios import summary
from peers.report import RATIO, markdown, rate, sections
from peers.works import FULL, QUICK, groups, takes_part
from towline.start import home


def one(per_s, p99=10.0, **more):
    quantiles = [p99 if share >= 0.99 else 1.0 for share in QUANTILES]
    return {"per_s": per_s, "quantiles_us": quantiles, "by_time": [1, 2], "cpu_us": 2.0, **more}


def test_a_ratio_is_taken_in_each_round_against_the_peer_that_was_best_in_it():
    found = summary(
        {
            "towline": [one(100.0), one(100.0), one(300.0)],
            "nats": [one(50.0), one(10.0), one(30.0)],
            "redis": [one(10.0), one(100.0), one(100.0)],
        }
    )
    assert found["towline"]["per_s"] == 100.0
    assert found["towline"]["per_s_of_best"] == 2.0  # of 2, 1, 3; the medians would say 3.3
    assert "per_s_of_best" not in found["nats"]
    assert found["redis"]["rounds"] == [10.0, 100.0, 100.0]


def test_the_best_latency_is_the_lowest_and_ours_are_no_peers_of_each_other():
    found = summary(
        {"towline": [one(1.0, 30.0)], "towline-ring": [one(9.0, 5.0)], "nats": [one(1.0, 10.0)], "redis": [one(2.0)]}
    )
    assert found["towline"]["p99_us_of_best"] == 3.0
    assert found["towline-ring"]["p99_us_of_best"] == 0.5
    assert found["towline-ring"]["per_s_of_best"] == 4.5
    assert found["towline"]["p50_us"] == 1.0


def test_what_a_system_lacks_is_left_out_and_alone_there_is_no_ratio():
    stored, lacking = one(1.0, memory_mb=100.0), one(1.0)
    found = summary({"towline": [stored], "nats": [lacking], "redis": [one(1.0, memory_mb=400.0)]})
    assert found["towline"]["memory_mb_of_best"] == 0.25
    assert not any(name.endswith("_of_best") for name in summary({"towline": [stored]})["towline"])
    assert summary({"towline": [None], "nats": [stored]}) == {"nats": summary({"nats": [stored]})["nats"]}


def test_a_round_that_one_of_them_failed_counts_in_no_ratio():
    found = summary(
        {
            "towline": [one(100.0), one(100.0), None],
            "nats": [one(50.0), one(10.0), one(1.0)],
            "redis": [one(10.0), None, one(1.0)],
        }
    )
    assert found["towline"]["per_s_of_best"] == 2.0
    assert found["towline"]["rounds"] == [100.0, 100.0]
    assert found["redis"]["per_s"] == 5.5
    assert "per_s_of_best" not in summary({"towline": [one(1.0), None], "nats": [None, one(1.0)]})["towline"]


def test_cpu_by_process_is_a_median_and_who_did_nothing_counts_as_nothing():
    rounds = [one(1.0, cpu_us_by_process=each) for each in ({"a": 3.0, "b": 1.0}, {"a": 5.0}, {"a": 4.0})]
    assert summary({"towline": rounds})["towline"]["cpu_us_by_process"] == {"a": 4.0, "b": 0.0}


def row(work, **systems):
    return {"name": work.name, "work": work.to_json(), "systems": systems}


def rows():
    put = Work(kind=Kind.PUT, body=100, clients=1)
    towline = {"per_s_of_best": 6.0, "per_s": 6e6, "cpu_us_by_process": {"towline:put": 0.4}, "cpu_us": 2.5}
    kib = replace(put, body=1024)
    behind, in_sync = (replace(kib, replica=replica) for replica in (Replica.BEHIND, Replica.IN_SYNC))
    found = [
        row(put, towline=towline),
        row(replace(put, clients=4), towline=towline | {"per_s_of_best": 4.0}),
        row(replace(put, clients=2), towline=towline | {"per_s_of_best": 1.0}),
        row(kib, towline=towline),
        row(replace(kib, clients=4), towline=towline | {"per_s_of_best": 4.0}),
        row(behind, towline={"per_s": 100.0}),
        row(in_sync, towline={"per_s": 65.0}),
        row(Work(kind=Kind.RATE, body=1024, rate=5000.0), towline={"p99_us": 200.0, "p99_9_us_of_best": 1.5}),
    ]
    beside_behind(found)
    return found


def test_the_worst_row_decides_about_a_floor_and_a_goal():
    found = {(each["goal"], each["what"]): each for each in judge(rows())}
    burst = found["T2", "put pipelined 1 KiB, of the best peer: ZeroMQ"]
    assert (burst["reached"], burst["floor_met"], burst["goal_met"]) == (4.0, True, False)
    replica = found["T9", "one in-sync replica, of one that nobody waits for"]
    assert (replica["reached"], replica["floor_met"], replica["goal_met"]) == (0.65, True, False)
    late = found["T6", "5,000/s, p99: ZeroMQ"]
    assert (late["reached"], late["floor_met"], late["goal_met"]) == (200.0, None, True)
    assert found["T12", "CPU of put per 1-KiB message"]["goal_met"]
    assert not found["T12", "CPU of all processes per 1-KiB message"]["goal_met"]
    assert ("T8", "replay, of the best peer") not in found  # it was not measured


def test_every_goal_is_measured_by_the_full_form_and_no_two_works_are_the_same():
    works = [task.work for group in groups(FULL).values() for task in group]
    assert len({work.name for work in works}) == len(works)
    for goal in GOALS:
        assert any(goal.of(work) and takes_part(goal.system, work) for work in works), goal.what
    assert set(groups(QUICK)) == set(groups(FULL))
    assert not any(takes_part("redis", work) for work in works if work.replica is not Replica.NONE)


def result():
    found = rows()
    for each in found:
        for figures in each["systems"].values():
            figures |= summary({"nats": [one(figures.get("per_s", 1.0))]})["nats"] | figures
    stored = Work(kind=Kind.STORED, body=1024, count=64)
    kept = {"first_ack_s": 0.5, "memory_mb": 150.0, "lost": 0, "disk_per_byte": 1.1}
    return {
        "made": "2026-01-02T03:04:05+00:00",
        "rounds": 5,
        "versions": {"towline": "towline 1", "nats": "nats 2"},
        "absent": {"redis": "redis-server is not installed"},
        "failed": {"nats: put 1 KiB, 1 client, async": "round 1: it fell silent"},
        "skipped": ["round 5: tail"],
        "limits": {"copy_gb_s": 12.0, "raw_zmq_64_x_100_per_s": 1_234_000.0},
        "rows": [
            *found,
            row(stored, towline=kept | {"rounds": [1.0]}),
        ],
        "goals": judge(found),
        "machine": {"cpus": 2, "cpu": "a CPU", "memory_gb": 16.0, "load": 0.1},
        "seconds": 60.0,
    }


def test_the_tables_hold_every_figure_and_every_mark():
    found = {section.title: section for section in sections(result())}
    flows = found["messages a second"]
    assert flows.columns == ("work", "#rounds", "#towline", "#nats", RATIO)
    assert flows.rows[0] == ("put 100 B, 1 client, async", "1", "6.00 M", "-", "6.00x / - / - / -")
    assert flows.rows[3][:4] == ("put 1 KiB, 1 client, async", "1", "6.00 M", "failed")
    burst = ("T1", "put pipelined 100 B, 4 clients, of the best peer: ZeroMQ", "4x", ">= 6: NOT met", ">= 10: NOT met")
    assert burst in found["floors and goals"].rows
    assert ("raw pyzmq push-pull, frames of 64 x 100 B, messages/s", "1.23 M") in found[
        "limits of this machine, in the same run"
    ].rows
    assert found["not measured"].rows == (
        ("redis", "redis-server is not installed"),
        ("nats: put 1 KiB, 1 client, async", "round 1: it fell silent"),
        ("round 5: tail", "there was no time for it"),
    )
    assert all(len(row) == len(section.columns) for section in found.values() for row in section.rows)


def test_rates_have_three_digits():
    assert [rate(value) for value in (12, 1234, 56_789, 987_654, 12_345_678)] == [
        "12",
        "1.23 k",
        "56.8 k",
        "988 k",
        "12.3 M",
    ]


def test_pictures_and_the_page_are_drawn(tmp_path):
    files = draw(tmp_path / "new", result())
    assert [file.name for file in files] == [BARS, LATENCY, OVER_TIME, PAGE]
    for file in files[:3]:
        assert file.read_bytes().startswith(b"\x89PNG")
    page = files[-1].read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "put 100 B, 4 clients, async" in page


def test_a_page_quotes_what_stands_between_its_marks():
    begin, end = "<!-- bench peers: begin -->", "<!-- bench peers: end -->"
    made = quoted(f"before\n{begin}\nold\n{end}\nafter", "bench peers", markdown(result()))
    assert made.startswith(f"before\n{begin}\nMeasured 2026-01-02")
    assert made.endswith(f"{end}\nafter")
    assert "old" not in made
    assert quoted(made, "bench peers", markdown(result())) == made
    with pytest.raises(ValueError, match="not found"):
        quoted("no marks", "bench peers", "")


@pytest.mark.parametrize(("page", "expected"), list(pages(home())), ids=lambda each: getattr(each, "name", ""))
def test_the_page_is_what_the_kept_results_say(page, expected):
    assert page.read_text(encoding="utf-8") == expected, "run `python -m peers.quote`"


def test_the_page_names_a_work_that_no_round_measured_and_no_round_of_one_that_was():
    found = result()
    measured = found["rows"][0]["name"]
    said = markdown(found | {"skipped": [f"round 3: {measured}", f"round 1: {measured}; tail"]})
    assert "| tail | there was no time for it |" in said
    assert "round 3" not in said
    assert f"| {measured} | there was no time" not in said


class TestFigures:
    KEPT: ClassVar = {
        "machines": [{"id": "a", "name": "A", "what": "one"}, {"id": "b", "name": "B", "what": "two"}],
        "notes": {"warm": "The cache was warm."},
        "figures": [
            {
                "topic": "Reading",
                "what": "a pull",
                "goal": "2 ms",
                "results": {"a": {"figure": "3 ms", "met": False}, "b": {"figure": "1 ms", "met": True}},
                "recorded": "2026-01-02",
                "command": "towline bench x",
                "notes": ["warm"],
            },
            {
                "topic": "Writing",
                "what": "a put",
                "goal": None,
                "results": {"b": {"figure": "9 us", "met": None}},
                "recorded": "2026-01-03",
                "command": "towline bench y",
                "readme": "one put",
            },
        ],
    }

    def test_a_row_says_goal_machine_date_and_command_and_what_is_not_met(self):
        said = tables(self.KEPT)
        assert "| what | goal | A | B | written down | command |" in said
        assert "| a pull (note 1) | 2 ms | 3 ms, **not met** | 1 ms, met | 2026-01-02 | `towline bench x` |" in said
        assert "| a put | - | - | 9 us | 2026-01-03 | `towline bench y` |" in said
        assert "1. The cache was warm." in said
        assert said.index("### Reading") < said.index("### Writing")

    def test_readme_has_six_from_both_files_and_says_who_is_the_best_peer_of_a_time(self):
        def of(value):
            return {"per_s": value, "per_s_of_best": 2.0, "first_ack_s": 1.0}

        works = [
            {"name": work, "systems": {system: of(1000.0), "redis": {"first_ack_s": 3.0}, "nats": {"first_ack_s": 0.5}}}
            for _, work, system, _, _ in OF_PEERS
        ]
        said = six({"rows": works}, self.KEPT).splitlines()[2:]
        assert len(said) == 6
        assert said[0] == "| put 100 B, one client | 1.00 k msg/s | 2.0 times | `make bench-full` |"
        assert said[4].endswith("| 1.00 s | nats 0.50 s | `make bench-full` |")
        assert said[5] == "| one put | 9 us | - | `towline bench y` |"


def test_works_that_sync_say_so():
    found = groups(FULL)
    assert all(task.work.durability is Durability.SYNC for name in ("sync", "slow-sync") for task in found[name])

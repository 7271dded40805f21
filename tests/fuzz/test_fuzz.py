"""Decoders of bytes that others made return or refuse by name, whatever these are; and the fuzzer finds defects."""

import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz.__main__ import INPUTS, jobs_of, table
from tests.fuzz.catalogue import every_target, target_of
from tests.fuzz.decoders import LEFT_OUT, PLACES, every_decoder, is_decoder
from tests.fuzz.found import FOUND, Found
from tests.fuzz.guided import ATHERIS
from tests.fuzz.judging import ACCEPTED, judge, judge_within
from tests.fuzz.mutation import Mutation
from tests.fuzz.planted import DEFECTS, SOUND, TALKING
from tests.fuzz.recording import Job
from tests.fuzz.running import ENDING, HarnessFailed, Run
from tests.fuzz.target import Grammar, Target

SEED = int(os.environ.get("TOWLINE_SEED", "94"))
EACH = 400  # inputs of each target in the quick form: some 30,000 in all
PLANTED = "tests.fuzz.planted"
PLANTED_INPUTS = 3_000
MODULES = every_target()


def made(name: str) -> Target:
    return target_of(MODULES[name], name)


def told(run: Run) -> str:
    """What failed, for a person."""
    lines = table(list(run.tallies.values()))
    stories = [
        f"{path}: {kind}\n{each.stories[kind]}" for each in run.tallies.values() for kind, path in each.kept.items()
    ]
    return "\n".join([*lines, *stories, f"TOWLINE_SEED={SEED} repeats it"])


def defects(run: Run) -> list[str]:
    return [kind for each in run.tallies.values() for kind in each.kept]


class TestEveryDecoder:
    def test_takes_or_refuses_by_name_whatever_bytes_it_gets(self, tmp_path: Path):
        run = Run(tmp_path)
        run.run("worker", [Job(module, name, EACH, SEED) for name, module in MODULES.items()])
        tallies = run.tallies.values()
        assert defects(run) == [], told(run)
        assert sum(each.inputs for each in tallies) == EACH * len(MODULES)
        assert all(sum(each.outcomes.values()) == EACH for each in tallies), told(run)
        assert all(each.outcomes[ACCEPTED] and len(each.outcomes) > 1 for each in tallies if made(each.name).refusals)

    @pytest.mark.slow
    @pytest.mark.timeout(0)
    @pytest.mark.parametrize("guided", [False, True], ids=["by changes", "by coverage"])
    def test_does_so_ten_million_times(self, tmp_path: Path, guided: bool):
        if guided:
            pytest.importorskip(ATHERIS, reason="no atheris")
        run = Run(tmp_path)
        jobs = [(worker, job) for worker, job in jobs_of(list(MODULES), INPUTS, SEED) if (worker == "guided") is guided]
        for worker, job in jobs:
            run.run(worker, [job])
        assert defects(run) == [], told(run)
        print("\n".join(table(list(run.tallies.values()))))

    @pytest.mark.parametrize("name", MODULES)
    def test_takes_its_seeds(self, name: str):
        target = made(name)
        verdicts = [judge(target, seed) for seed in target.seeds()]
        assert not any(verdict.defect for verdict in verdicts)
        assert any(verdict.outcome == ACCEPTED for verdict in verdicts)


@pytest.mark.parametrize("found", FOUND, ids=lambda found: f"{found.target}: {found.what}")
def test_what_was_found_once_is_taken_or_refused_by_name(found: Found):
    verdict = judge_within(made(found.target), found.data)
    assert verdict.defect is None, verdict.defect
    assert verdict.outcome == found.outcome


class TestTheListOfTargets:
    def test_has_every_function_that_reads_bytes_of_others_or_says_why_not(self):
        covered = {decoder for name in MODULES for decoder in made(name).covers}
        there = set(every_decoder())
        assert sorted(there - covered - LEFT_OUT.keys()) == [], "a target is wanted, or a reason in LEFT_OUT"
        assert sorted(LEFT_OUT.keys() - there) == [], "left out, and not there"
        assert sorted(LEFT_OUT.keys() & covered) == [], "left out, and a target"
        assert sorted(covered - there) == [], f"covered, and not there: named otherwise, or not in {PLACES}"

    def test_is_long(self):
        assert len(set(every_decoder())) > 150
        assert len(MODULES) > 60

    @pytest.mark.parametrize(
        ("name", "is_one"),
        [("decode", True), ("decode_put", True), ("read_header", True), ("_parse", True), ("loads", True),
         ("encode", False), ("readable", False), ("walker", False), ("spliterator", False)],
    )  # fmt: skip
    def test_knows_decoders_by_their_names(self, name: str, is_one: bool):
        assert is_decoder(name) is is_one

    @pytest.mark.parametrize("name", MODULES)
    def test_says_truly_what_each_target_calls(self, name: str):
        target = made(name)
        wanted = {each.partition(":")[2].rpartition(".")[2] for each in target.covers if ".kernels." not in each}
        called: set[str] = set()

        def note(frame: Any, event: str, _: object) -> None:
            if event == "call" and "/tests/" not in frame.f_code.co_filename:
                called.add(frame.f_code.co_name)

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            for seed in target.seeds():
                judge(target, seed)
        finally:
            sys.setprofile(before)
        assert wanted <= called


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of the planted decoders."""
    run = Run(tmp_path_factory.mktemp("kept"), patience_s=1.0, deaths_max=2)
    run.run("worker", [Job(PLANTED, target.name, PLANTED_INPUTS, SEED) for target in (SOUND, TALKING, *DEFECTS)])
    return run


class TestTheFuzzer:
    @pytest.mark.parametrize(("target", "said"), DEFECTS.items(), ids=lambda value: getattr(value, "name", ""))
    def test_finds_a_planted_mistake(self, run: Run, target: Target, said: str):
        kinds = run.tallies[target.name].kept
        assert any(said in kind for kind in kinds), kinds.keys()

    @pytest.mark.parametrize("target", [SOUND, TALKING], ids=lambda target: target.name)
    def test_finds_nothing_in_a_decoder_without_one(self, run: Run, target: Target):
        tally = run.tallies[target.name]
        assert (tally.inputs, tally.kept) == (PLANTED_INPUTS, {})
        assert tally.outcomes.keys() == {ACCEPTED, "MalformedFrame"}

    def test_keeps_the_input_that_failed_as_short_as_it_may_be(self, run: Run):
        (path,) = (path for kind, path in run.tallies["planted.infinite"].kept.items() if "OverflowError" in kind)
        assert path.name.startswith("planted.infinite-")
        assert path.name.endswith(ENDING)
        data = path.read_bytes()
        defect = judge(target_of(PLANTED, "planted.infinite"), data).defect
        assert defect is not None
        assert "OverflowError" in defect.kind
        assert len(data) <= len(b'{"count":-1e999}')

    def test_goes_on_behind_an_input_that_killed_its_worker(self, run: Run):
        assert run.tallies["planted.infinite"].inputs == PLANTED_INPUTS, "the last one, behind those that killed it"

    def test_says_so_where_no_worker_comes_up(self, tmp_path: Path):
        with pytest.raises(HarnessFailed, match="nothing"):
            Run(tmp_path).run("worker", [Job("tests.fuzz.nothing", "x", 1, 1)])

    def test_makes_the_same_inputs_of_the_same_seed(self):
        def inputs(seed: int) -> list[bytes]:
            mutation = Mutation(Random(seed), Grammar.JSON, (b"word",), 500)
            return [mutation.changed(b'{"a":[1,2]}', b"other") for _ in range(300)]

        assert inputs(1) == inputs(1) != inputs(2)
        assert max(map(len, inputs(1))) <= 500

    def test_shares_the_inputs_out_by_weight(self):
        jobs = [job for _, job in jobs_of(["record", "filter.table"], 1_300_000, 1)]
        shares = {name: sum(job.inputs for job in jobs if job.name == name) for name in ("record", "filter.table")}
        assert shares["record"] == 12 * shares["filter.table"]

    def test_is_guided_by_coverage_where_atheris_is_there(self, tmp_path: Path):
        pytest.importorskip(ATHERIS, reason="no atheris")
        run = Run(tmp_path)
        run.run("guided", [Job(MODULES["wire.put"], "wire.put", 3_000, SEED)])
        tally = run.tallies["wire.put"]
        assert (tally.inputs, tally.kept) == (3_000, {})
        assert tally.outcomes[ACCEPTED] > 10

"""Which segments go: a table of moments, a clock that jumps, and a model that deletes whatever the rules allow."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from towline.log.commitlog.cleaning import (
    DOUBT_MS,
    JUMP_MS,
    CleanRules,
    CleanState,
    DeleteReason,
    Deletion,
    DiskUse,
    SteadyTime,
    choose,
    full_in_s,
    hours_of,
    kept_shorter,
    lengthened,
    removable,
)

SIZE = 100
HOUR_MS = 3_600_000
NOW = 1_700_000_000_000
RULES = CleanRules(
    segment_size=SIZE,
    hours=frozenset({4}),
    reserved_ms=72 * HOUR_MS,
    reserved_bytes=0,
    max_used=75,
    forcibly=85,
    forced=True,
    batch_max=10,
)
OLD, YOUNG = NOW - 72 * HOUR_MS, NOW - 72 * HOUR_MS + 1


def disk(percent: int, of: int = 2000) -> DiskUse:
    return DiskUse(of * percent // 100, of - of * percent // 100)


def moment(
    percent: int = 10, hour: int = 12, log_bytes: int = 1000, lacking: int = 0, asked: bool = False
) -> CleanState:
    return CleanState(now_ms=NOW, hour=hour, disk=disk(percent), log_bytes=log_bytes, lacking=lacking, asked=asked)


def test_what_is_waited_for_stays_until_it_was_long_enough_or_is_forced() -> None:
    rules, asked = replace(RULES, waits_ms=HOUR_MS), []

    def waits(base: int) -> bool:
        asked.append(base)
        return base >= SIZE

    def gone(when: CleanState, ages: list[int], rules: CleanRules = rules) -> int:
        bases = [number * SIZE for number in range(len(ages))]
        return len(choose(rules, when, bases, lambda base: ages[base // SIZE], waits))

    assert gone(moment(hour=4), [OLD, OLD, OLD]) == 1
    assert asked == [0, SIZE]
    assert gone(moment(hour=4), [OLD, OLD - HOUR_MS, OLD]) == 2
    assert gone(moment(hour=4), [OLD, OLD], RULES) == 2, "where nothing can be delayed"
    assert gone(moment(hour=5), [OLD, OLD]) == 0
    asked.clear()
    assert gone(moment(percent=95), [YOUNG] * 3) == 2, "a disk that is too full waits for nothing"
    assert asked == []


KEPT = {
    "what is expired": (RULES, moment(hour=4), [OLD] * 3, 1),
    "what somebody asked for": (RULES, moment(asked=True), [OLD] * 3, 1),
    "what the ratio takes": (RULES, moment(76), [OLD] * 3, 1),
    "what the limit of bytes takes": (replace(RULES, reserved_bytes=750), moment(), [YOUNG] * 9, 1),
    "not what a full disk takes": (RULES, moment(94), [YOUNG] * 9, 2),
    "and nothing behind it": (RULES, moment(94, hour=4), [OLD] * 9, 2),
    "not what has no room": (RULES, moment(50, lacking=201), [YOUNG] * 9, 3),
    "a full disk that may force nothing": (replace(RULES, forced=False), moment(99), [OLD] * 3, 1),
}


@pytest.mark.parametrize(("rules", "when", "ages", "expected"), KEPT.values(), ids=KEPT)
def test_what_is_kept_goes_for_a_full_disk_alone(rules, when, ages, expected):
    """All but segment 0 are kept."""
    bases = [number * SIZE for number in range(len(ages))]
    doomed = choose(rules, when, bases, lambda base: ages[base // SIZE], is_kept=lambda base: base > 0)
    assert [each.base for each in doomed] == bases[:expected]


def goes(rules: CleanRules, when: CleanState, ages: list[int]) -> list[DeleteReason]:
    """The reasons, one per leading segment that goes; `ages` are the mtimes of segments 0, 100, 200, ..."""
    bases = [number * SIZE for number in range(len(ages))]
    doomed = choose(rules, when, bases, lambda base: ages[base // SIZE])
    assert [each.base for each in doomed] == bases[: len(doomed)]
    return [each.why for each in doomed]


TABLE = {
    "young files stay, whatever the hour": (RULES, moment(hour=4), [YOUNG, YOUNG], []),
    "old files stay until the hour comes": (RULES, moment(hour=5), [OLD, OLD], []),
    "old files go in the hour": (RULES, moment(hour=4), [OLD, OLD], [DeleteReason.HOUR] * 2),
    "several hours": (replace(RULES, hours=hours_of("03;23")), moment(hour=23), [OLD], [DeleteReason.HOUR]),
    "asked for, old files go at any hour": (RULES, moment(asked=True), [OLD, YOUNG], [DeleteReason.ASKED]),
    "the first that is young ends the list": (RULES, moment(hour=4), [OLD, YOUNG, OLD], [DeleteReason.HOUR]),
    "the ratio itself is no excess": (RULES, moment(75), [OLD], []),
    "above the ratio old files go at any hour": (RULES, moment(76), [OLD, YOUNG], [DeleteReason.RATIO]),
    "above it young ones stay": (RULES, moment(85), [YOUNG], []),
    "above forcibly just enough goes whatever its age": (RULES, moment(90), [YOUNG] * 9, [DeleteReason.FORCED]),
    "two segments of excess": (RULES, moment(94), [YOUNG] * 9, [DeleteReason.FORCED] * 2),
    "forced and then expired": (RULES, moment(90), [OLD, OLD, YOUNG], [DeleteReason.FORCED, DeleteReason.RATIO]),
    "not forced: only the old": (replace(RULES, forced=False), moment(99), [OLD, YOUNG], [DeleteReason.RATIO]),
    "not forced: not even without room": (replace(RULES, forced=False), moment(50, lacking=90), [YOUNG], []),
    "no room for a segment": (RULES, moment(50, lacking=101), [YOUNG] * 9, [DeleteReason.NO_ROOM] * 2),
    "the limit of bytes is kept": (replace(RULES, reserved_bytes=1000), moment(), [YOUNG] * 9, []),
    "above the limit of bytes": (replace(RULES, reserved_bytes=750), moment(), [YOUNG] * 9, [DeleteReason.BYTES] * 3),
    "never more than a batch": (replace(RULES, batch_max=2), moment(hour=4), [OLD] * 9, [DeleteReason.HOUR] * 2),
    "nothing to delete": (RULES, moment(99), [], []),
}


@pytest.mark.parametrize(("rules", "when", "ages", "expected"), TABLE.values(), ids=TABLE)
def test_what_goes_and_why(rules, when, ages, expected):
    assert goes(rules, when, ages) == expected


BORDERS = [
    # synced, appended, what may go of segments 0, 100, 200
    (300, 350, [0, 100, 200]),
    (300, 300, [0, 100]),  # the last byte stands in segment 200
    (299, 350, [0, 100]),
    (0, 350, []),
    (300, 0, []),
    (300, 101, [0]),
    (300, 100, []),
]


@pytest.mark.parametrize(("synced", "appended", "expected"), BORDERS)
def test_only_what_is_synced_and_never_the_segment_with_the_last_byte(synced, appended, expected):
    assert removable([0, 100, 200], SIZE, synced=synced, appended=appended) == expected


@pytest.mark.parametrize(
    ("topics", "hours"),
    [({}, 72), ({"a": HOUR_MS}, 72), ({"a": HOUR_MS, "b": 100 * HOUR_MS, "c": 99 * HOUR_MS}, 100)],
    ids=["without one", "a shorter one", "the longest"],
)
def test_no_segment_expires_before_the_messages_of_any_topic(topics, hours):
    rules = lengthened(replace(RULES, waits_ms=HOUR_MS), topics)
    assert rules == replace(RULES, waits_ms=HOUR_MS, reserved_ms=hours * HOUR_MS)
    ages = [NOW - hours * HOUR_MS, NOW - hours * HOUR_MS + 1]
    assert goes(rules, moment(hour=4), ages) == [DeleteReason.HOUR]


@pytest.mark.parametrize("why", DeleteReason)
def test_who_loses_messages_before_their_time_is_named(why):
    topics = {"long": 10 * HOUR_MS, "also": 6 * HOUR_MS, "short": 5 * HOUR_MS}
    forced = why in (DeleteReason.NO_ROOM, DeleteReason.FORCED, DeleteReason.BYTES)
    assert kept_shorter(Deletion(0, why, 5 * HOUR_MS), topics) == (["also", "long"] if forced else [])


def test_room_goes_before_the_time_of_a_topic():
    rules = lengthened(RULES, {"a": 1000 * HOUR_MS})
    assert goes(rules, moment(95), [OLD] * 4)[:1] == [DeleteReason.FORCED]


def test_the_used_share_is_rounded_up():
    assert [DiskUse(used, 1000 - used).percent for used in (0, 1, 10, 749, 750, 751, 1000)] == [
        0,
        1,
        1,
        75,
        75,
        76,
        100,
    ]


@given(st.integers(0, 10**13), st.integers(0, 10**13), st.integers(0, 100))
def test_the_excess_is_exactly_what_brings_the_share_down(used, available, percent):
    use = DiskUse(used, available)
    excess = use.excess(percent)
    assert DiskUse(used - excess, available + excess).percent <= percent
    if excess:
        assert DiskUse(used - excess + 1, available + excess - 1).percent > percent


def test_a_clock_that_jumps_forward_makes_nothing_old_for_an_hour():
    clock = SteadyTime()
    assert clock.believe(NOW, 1000) == NOW
    assert clock.believe(NOW + JUMP_MS + 500, 1500) == NOW + JUMP_MS + 500, "a correction is no jump"
    ahead = NOW + JUMP_MS - 1000
    jumped = ahead + 30 * 365 * 24 * HOUR_MS
    assert clock.believe(jumped, 2000) == ahead + 2000
    assert clock.doubted
    assert clock.believe(jumped + DOUBT_MS - 1, 2000 + DOUBT_MS - 1) == ahead + 2000 + DOUBT_MS - 1
    assert clock.believe(jumped + DOUBT_MS, 2000 + DOUBT_MS) == jumped + DOUBT_MS
    assert not clock.doubted


def test_a_clock_that_jumps_and_returns_was_never_believed():
    clock = SteadyTime()
    clock.believe(NOW, 0)
    clock.believe(NOW + 10 * HOUR_MS, 10)
    assert clock.believe(NOW + 20, 20) == NOW + 20
    assert not clock.doubted
    assert clock.believe(NOW - HOUR_MS, 30) == NOW - HOUR_MS, "backward only makes files younger"


@pytest.mark.parametrize(
    ("use", "level", "log_bytes", "log_ms", "seconds"),
    [(disk(50), 90, 400, 1000_000, 2000), (disk(95), 90, 400, 1000, 0), (disk(50), 90, 0, 1000, None)],
)
def test_a_forecast(use, level, log_bytes, log_ms, seconds):
    assert full_in_s(use, level, log_bytes, log_ms) == seconds


class ALogThatIsCleaned(RuleBasedStateMachine):
    """Segments are written, become synced, grow old and go. `segments` maps each base to its mtime."""

    @initialize(
        forced=st.booleans(), batch=st.integers(1, 5), limit=st.sampled_from([0, 400, 900]), hours=st.integers(0, 23)
    )
    def begin(self, forced, batch, limit, hours):
        self.rules = replace(
            RULES, forced=forced, batch_max=batch, reserved_bytes=limit, hours=frozenset({hours}), reserved_ms=50
        )
        self.segments: dict[int, int] = {0: 0}
        self.now = self.appended = self.synced = self.cleaned = 0

    @rule(size=st.integers(1, 350))
    def append(self, size):
        self.appended += size
        for base in range(0, self.appended + 1, SIZE):
            if base >= self.cleaned:
                self.segments.setdefault(base, self.now)
        self.segments[(self.appended - 1) // SIZE * SIZE] = self.now

    @rule(part=st.floats(0, 1))
    def sync(self, part):
        self.synced += int((self.appended - self.synced) * part)

    @rule(ms=st.integers(1, 100))
    def wait(self, ms):
        self.now += ms

    @rule(percent=st.integers(0, 100), hour=st.integers(0, 23), lacking=st.sampled_from([0, 0, 1, 250]))
    def clean(self, percent, hour, lacking):
        before = sorted(self.segments)
        candidates = removable(before, SIZE, synced=self.synced, appended=self.appended)
        when = CleanState(now_ms=self.now, hour=hour, disk=disk(percent), log_bytes=SIZE * len(before), lacking=lacking)
        doomed = choose(self.rules, when, candidates, self.segments.__getitem__)
        bases = [each.base for each in doomed]
        assert bases == before[: len(bases)], "a gap"
        assert len(bases) <= self.rules.batch_max
        assert all(base + SIZE <= self.synced and base + SIZE < self.appended for base in bases)
        full = self.rules.forced and (percent > RULES.forcibly or lacking)
        over = self.rules.reserved_bytes and when.log_bytes > self.rules.reserved_bytes
        for each in doomed:
            old = self.now - self.segments[each.base] >= self.rules.reserved_ms
            timely = hour in self.rules.hours or percent > RULES.max_used
            assert (old and timely) or full or over, each
        if over and len(bases) < min(len(candidates), self.rules.batch_max):
            assert when.log_bytes - SIZE * len(bases) <= self.rules.reserved_bytes
        for base in bases:
            del self.segments[base]
        self.cleaned = max([self.cleaned, *(base + SIZE for base in bases)])

    @invariant()
    def the_end_and_all_that_is_not_synced_is_there(self):
        if self.appended:
            assert (self.appended - 1) // SIZE * SIZE in self.segments
        assert all(base in self.segments for base in range(self.synced // SIZE * SIZE, self.appended, SIZE))


TestALogThatIsCleaned = ALogThatIsCleaned.TestCase
TestALogThatIsCleaned.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

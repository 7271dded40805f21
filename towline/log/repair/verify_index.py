"""Verification of the IndexFiles: every entry is of a key in the log, in the log's order, and none is missing.

A file's header and slots are what its entries say, and each entry points to the one before it in its slot, so every
chain ends. Entry 0, and entries at or behind the header's count, mean nothing: a killed writer may leave any bytes.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.files import index_file
from towline.format.files.index_file import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT, SLOT_SIZE, TIME_DIFF_MAX, Header
from towline.kernels.scan.verify import check_chains, key_entries
from towline.log.commitlog.dispatch import KEYS_MAX, Batch
from towline.log.files.mapped_file import MappedFile

from .verify_report import START, Findings, length_of

_ENTRIES_AT_ONCE: Final = 800_000
_BAD_MAX: Final = 200  # wrong links of one file that are reported one by one
_SECOND: Final = 1000
_MIX: Final = 0x9E37_79B9_7F4A_7C15
_AGAIN: Final = 128  # entries back, twice the keys of most records
Numbers = npt.NDArray[np.int64]


@dataclass
class _File:
    """One file, mapped; `next` is the first entry not compared with the log. `before` is the header of the file before.

    `begin` and `end` are the store times of the records of its first and last entry as the log says, 0 if it does not;
    `others` how many entries are of keys that Towline does not index.
    """

    path: Path
    mapped: MappedFile
    slots: int
    header: Header
    count: int
    before: Header
    next: int = 1
    begin: int = 0
    end: int = 0
    others: int = 0

    @property
    def entries(self) -> npt.NDArray[np.void]:
        return self.mapped.array[index_file.entry_at(self.slots, 0) :].view(ENTRY)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the log said of a file: the first entry not compared, store times of the first and the last."""

    name: str
    next: int
    begin: int
    end: int


Place = tuple[int, int]  # number of a file, and of an entry in it


@dataclass(frozen=True, slots=True)
class IndexPart:
    """What a stretch of the log says of the index: its keys are the entries from `first` to `end`, if it is `sound`.

    `begins` and `ends` are the store times of first and last entries of files that were met, by number of the file.
    """

    sound: bool
    first: Place
    end: Place
    begins: dict[int, int]
    ends: dict[int, int]


class IndexVerifier:
    """`take` the batches of the log, then `finish`.

    Or others take stretches of the log, each of which becomes a `part`, and `absorb` puts the parts together.
    """

    def __init__(
        self,
        directory: Path,
        slots: int,
        indexes: int,
        findings: Findings,
        *,
        log_min: int,
        surely: int,
        running: bool = False,
        apart: bool = False,
    ) -> None:
        """`surely`: log offset up to which the index was synced; what is missing there no start derives again.

        A `running` node makes files. `apart`: one of many, each of which has its own part to check.
        """
        self._findings, self._slots, self._indexes = findings, slots, indexes
        self._log_min, self._surely = log_min, surely
        self._hashes, self._offsets, self._times = (np.zeros(KEYS_MAX, np.int64) for _ in range(3))
        self._missing: list[int] | None = None  # first and last log offset of records whose keys are missing, how many
        self._files = self._load(directory, running=running)
        self._passed_records: Numbers = np.empty(0, np.int64)  # log offsets of those whose keys were compared last
        self._at = 0  # the file whose entries are compared next
        if not apart:
            self._skip_deleted()
        self._first: Place | None = None
        self._told = len(findings.rows)

    def _load(self, directory: Path, *, running: bool) -> list[_File]:
        files: list[_File] = []
        expected = index_file.file_size(self._slots, self._indexes)
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if running and path.name.endswith(".new"):
                continue
            length = length_of(path)
            if path.name.endswith(".new"):
                self._findings.add(path, 0, length, "INDEX_UNFINISHED")
            elif not (path.name.isascii() and path.name.isdecimal()) or path.is_dir():
                self._findings.add(path, 0, length, "FOREIGN", "the name is no number: every reader skips it")
            elif length != expected:
                said = f"{self._slots} slots and {self._indexes} entries make {expected} bytes, it has {length}"
                self._findings.add(path, 0, length, "INDEX_SIZE", said)
            else:
                mapped = MappedFile.open(path, length, writable=False)
                header = index_file.decode_header(bytes(mapped.view[:HEADER_SIZE]))
                count = min(max(header.index_count, 1), self._indexes)
                before = files[-1].header if files else Header()
                files.append(_File(path, mapped, self._slots, header, count, before))
        return files

    def _skip_deleted(self) -> None:
        """Entries of records that were deleted with their segments cannot be compared."""
        for file in self._files:
            offsets = file.entries["physical_offset"][1 : file.count].astype(np.int64)
            live = (offsets >= self._log_min) | (offsets < 0)
            file.next = 1 + int(live.argmax()) if live.any() else file.count
            if file.next < file.count:
                break

    # --- in parts

    def begin_at(self, offset: int) -> None:
        """The next batch is that at `offset` of the log; entries of records before it are compared elsewhere."""
        for file in self._files:
            places = file.entries["physical_offset"]
            file.next = bisect_left(places, offset, lo=1, hi=file.count)
            if file.next < file.count:
                break
        self._at = 0
        self._first = self._place()

    def part(self) -> IndexPart:
        """What was taken since `begin_at`."""
        assert self._first is not None
        sound = self._missing is None and len(self._findings.rows) == self._told
        sound = sound and not any(file.others for file in self._files)
        begins = {number: file.begin for number, file in enumerate(self._files) if file.begin}
        whole = [number for number, file in enumerate(self._files) if file.end and file.next == file.count]
        ends = {number: self._files[number].end for number in whole}
        return IndexPart(sound, self._first, self._place(), begins, ends)

    def absorb(self, parts: Iterable[IndexPart], *, whole: bool) -> bool:
        """Takes all stretches of the log. False, and nothing is taken, unless their entries follow each other.

        Then all batches are to be taken themselves: what is wrong shows only in their order. `whole` as in `finish`.
        """
        parts, at = list(parts), self._place()
        for part in parts:
            if not part.sound or part.first != at:
                return False
            at = part.end
        if whole and at[0] < len(self._files):
            return False
        for part in parts:
            for number, begin in part.begins.items():
                self._files[number].begin = begin
            for number, end in part.ends.items():
                self._files[number].end = end
        for file in self._files[: at[0]]:
            file.next = file.count
        for file in self._files[at[0] : at[0] + 1]:
            file.next = at[1]
        return True

    def _place(self) -> Place:
        """Of the entry that is compared next."""
        file = self._current()
        return (self._at, file.next) if file is not None else (len(self._files), 0)

    @property
    def file_count(self) -> int:
        return len(self._files)

    def facts(self, number: int) -> FileFacts:
        """What the log said of a file."""
        file = self._files[number]
        return FileFacts(file.path.name, file.next, file.begin, file.end)

    def check_file(self, facts: FileFacts, findings: Findings, *, whole: bool) -> None:
        """`finish` for one file, of which another verifier knows what the log said. It may have been deleted since."""
        self._findings = findings
        for file in self._files:
            if file.path.name == facts.name:
                file.next, file.begin, file.end = facts.next, facts.begin, facts.end
                self._check_chains(file, whole=whole)

    def close(self) -> None:
        """Without `finish`."""
        for file in self._files:
            file.mapped.release()

    # --- against the log

    def take(self, batch: Batch) -> None:
        count = len(batch.keys)
        if not count:
            self._passed_records = np.concatenate((self._passed_records, batch.rows["phy"]))
            return
        key_entries(batch.log, batch.rows, batch.keys, self._hashes, self._offsets, self._times)
        first = 0
        while first < count:
            file = self._current()
            if file is None:
                self._lost(first, count)
                return
            size = min(count - first, file.count - file.next)
            same = self._same(file, first, size)
            wrong = int(same.argmin()) if not same.all() else size
            self._passed(file, first, wrong)
            first += wrong
            if wrong < size:
                following = self._interleaved(file, batch, first, count)
                first = self._differs(file, first, count) if following is None else following
        self._passed_records = batch.rows["phy"].copy()

    def _current(self) -> _File | None:
        while self._at < len(self._files) and self._files[self._at].next >= self._files[self._at].count:
            self._at += 1
        return self._files[self._at] if self._at < len(self._files) else None

    def _same(self, file: _File, first: int, size: int) -> npt.NDArray[np.bool_]:
        """Which of the next `size` entries of a file are those of the keys from `first` on."""
        entries, stop = file.entries[file.next : file.next + size], first + size
        if file.next == 1 and size and entries["physical_offset"][0] == self._offsets[first]:
            file.begin = int(self._times[first])
        same: npt.NDArray[np.bool_] = entries["key_hash"] == self._hashes[first:stop]
        same &= entries["physical_offset"] == self._offsets[first:stop]
        seconds = _seconds(self._times[first:stop], file.begin or file.header.begin_timestamp)
        fits = entries["time_diff"] == seconds
        if file.next == 1 and size:  # it was put before the file had a time of its own
            fits[0] = int(entries["time_diff"][0]) in (
                0,
                int(_seconds(self._times[first:stop], file.before.end_timestamp)[0]),
            )
        same &= fits
        return same

    def _interleaved(self, file: _File, batch: Batch, first: int, count: int) -> int | None:
        """Goes past entries of other keys of the same records, as brokers write that index tags as well (5.4 on).

        The key to go on with; None unless all that is left over are such entries.
        """
        places = file.entries["physical_offset"][file.next : file.count].astype(np.int64)
        stop = int(np.searchsorted(places, int(batch.rows[-1]["phy"]), side="right"))
        entries = file.entries[file.next : file.next + stop]
        expected = _mixed(self._offsets[first:count], self._hashes[first:count])
        found = _mixed(places[:stop], entries["key_hash"].astype(np.int64))
        known = np.isin(found, expected)
        size = int(np.count_nonzero(known))
        ends_here = file.next + stop == file.count and self._at + 1 < len(self._files)
        if not stop or size == stop or (size != count - first and not ends_here):
            return None
        if size < count - first and not known[-1] and self._offsets[first + size] == places[stop - 1]:
            return None  # the last entry of the file is not another key's but a damaged one
        times = _seconds(self._times[first : first + size], file.begin or file.header.begin_timestamp)
        if file.next == 1 or not np.array_equal(found[known], expected[:size]):
            return None
        if not (entries["time_diff"][known] == times).all() or not self._of_records(places[:stop][~known], batch):
            return None
        file.others += stop - size
        file.next += stop
        file.end = 0  # the last entry may be one of the others
        return first + size

    def _of_records(self, places: Numbers, batch: Batch) -> bool:
        """Whether records begin at all these places: of this batch, or of the one before, whose tags come last."""
        known = np.isin(places, batch.rows["phy"]) | np.isin(places, self._passed_records)
        return bool(known.all())

    def _passed(self, file: _File, first: int, count: int) -> None:
        if count:
            file.next += count
            file.end = int(self._times[first + count - 1])

    def _differs(self, file: _File, first: int, count: int) -> int:
        """One step over a difference: a wrong entry, one too many, or keys that are missing. The key to go on with."""
        entry = file.entries[file.next]
        found, expected = int(entry["physical_offset"]), int(self._offsets[first])
        following = file.next + 1 < file.count and first + 1 < count
        aligned = following and self._is_key(file, file.next + 1, first + 1)
        if found == expected or aligned or (file.next + 1 == file.count and first + 1 == count):
            self._entry(file, "INDEX_ENTRY")
            self._passed(file, first, 1)
            return first + 1
        if self._again(file):
            self._entry(file, "INDEX_TWICE")
            file.next += 1
            return first
        if found < expected or (file.next + 1 < file.count and self._is_key(file, file.next + 1, first)):
            self._entry(file, "INDEX_EXTRA")
            file.next += 1
            return first
        stop = first + max(1, int(np.searchsorted(self._offsets[first:count], found)))
        self._lost(first, stop)
        self._entry(file, "INDEX_MISSING")
        return stop

    def _again(self, file: _File) -> bool:
        """Whether the next entry repeats one just before: a real broker's start indexes the newest record again."""
        entry, earlier = file.entries[file.next], file.entries[max(1, file.next - _AGAIN) : file.next]
        same = (earlier["physical_offset"] == entry["physical_offset"]) & (earlier["key_hash"] == entry["key_hash"])
        return bool(same.any())

    def _is_key(self, file: _File, number: int, key: int) -> bool:
        """Whether an entry is that of a key of the batch."""
        entry = file.entries[number]
        return bool(entry["key_hash"] == self._hashes[key] and entry["physical_offset"] == self._offsets[key])

    def _lost(self, first: int, stop: int) -> None:
        low, high = int(self._offsets[first]), int(self._offsets[stop - 1])
        if self._missing is None:
            self._missing = [low, high, 0]
        self._missing[1] = high
        self._missing[2] += stop - first

    def _entry(self, file: _File, rule: str) -> None:
        at = index_file.entry_at(self._slots, file.next)
        self._findings.add(file.path, at, at + ENTRY_SIZE, rule)

    # --- what a file says of itself

    def finish(self, *, whole: bool, chains: bool = True) -> None:
        """`whole` when the batches reached the log's end and nobody writes: then slots and ends are compared too.

        Without `chains` the files are left to be checked one by one, and to be closed.
        """
        while whole and (file := self._current()) is not None:
            if self._again(file):
                self._entry(file, "INDEX_TWICE")
            elif file.others and file.entries["physical_offset"][file.next] in self._passed_records:
                file.others += 1
            else:
                self._entry(file, "INDEX_EXTRA")
            file.next += 1
        if self._missing is not None and whole:
            self._report_missing()
        for file in self._files:
            if file.others:
                said = f"{file.others} entries of other keys: brokers from 5.4 on index tags as well"
                self._findings.add(file.path, 0, 0, "INDEX_OTHERS", said)
            if chains:
                self._check_chains(file, whole=whole)
        if chains:
            self.close()

    def _report_missing(self) -> None:
        assert self._missing is not None
        low, high, count = self._missing
        behind = low >= self._surely
        path = self._files[-1].path if self._files else self._findings.root / "index"
        said = f"{count} keys of records at {low} to {high} of the log are not in the index"
        at = index_file.entry_at(self._slots, self._files[-1].count) if self._files else 0
        if behind:
            self._findings.add(path, at, at, "INDEX_BEHIND", said, remedy=START)
        else:
            self._findings.add(path, at, at, "INDEX_MISSING", said)

    def _check_chains(self, file: _File, *, whole: bool) -> None:
        heads, bad = np.zeros(self._slots, np.int32), np.zeros(_BAD_MAX, np.int64)
        for first in range(1, file.count, _ENTRIES_AT_ONCE):
            stop = min(first + _ENTRIES_AT_ONCE, file.count)
            found = int(check_chains(file.mapped.array, self._slots, first, stop, heads, bad))
            for number in bad[: min(found, _BAD_MAX)]:
                at = index_file.entry_at(self._slots, int(number))
                self._findings.add(file.path, at, at + ENTRY_SIZE, "INDEX_CHAIN")
        if not whole:
            return
        cells = file.mapped.array[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE * self._slots].view(SLOT)
        for slot in np.flatnonzero(cells != heads)[:_BAD_MAX]:
            at = index_file.slot_at(int(slot))
            self._findings.add(file.path, at, at + SLOT_SIZE, "INDEX_SLOT")
        self._check_header(file, int(np.count_nonzero(heads)), int(cells.max(initial=0)))

    def _check_header(self, file: _File, used: int, newest: int) -> None:
        """Against the entries and, where the log still holds their records, against those.

        `used` slots; the greatest number in one is `newest`, which is the last entry.
        """
        raw = index_file.LAYOUT.unpack_from(bytes(file.mapped.view[:HEADER_SIZE]))
        found = {field.name: value for field, value in zip(index_file.LAYOUT.fields, raw, strict=True)}
        last = file.count - 1
        allowed: dict[str, set[int]] = {"hash_slot_count": {used}, "index_count": {file.count}}
        if last == 0:
            allowed["index_count"] = {0, 1}  # nothing was ever put, or everything was cut off
            allowed["begin_timestamp"] = allowed["end_timestamp"] = {0, file.before.end_timestamp}
            allowed["begin_physical_offset"] = allowed["end_physical_offset"] = {0, file.before.end_physical_offset}
        else:
            allowed["begin_physical_offset"] = {int(file.entries["physical_offset"][1])}
            allowed["end_physical_offset"] = {int(file.entries["physical_offset"][last])}
            allowed["begin_timestamp"] = {file.begin} if file.begin else {found["begin_timestamp"]}
            allowed["end_timestamp"] = {file.end} if file.end and file.next > last else {found["end_timestamp"]}
        wrong = [name for name, values in allowed.items() if found[name] not in values]
        if newest > last and "index_count" not in wrong:
            wrong.append("index_count")
        if wrong:
            said = f"the header's {', '.join(wrong)} do not fit the entries"
            self._findings.add(file.path, 0, HEADER_SIZE, "INDEX_HEADER", said)


def _mixed(offsets: Numbers, hashes: Numbers) -> Numbers:
    """One number for each pair of log offset and key hash; two pairs share one as rarely as any two of 2**64."""
    return (offsets.astype(np.uint64) * np.uint64(_MIX) + hashes.astype(np.uint64)).view(np.int64)


def _seconds(times: Numbers, begin: int) -> Numbers:
    """What entries of records of these times hold in a file that begins at `begin` (spec 4.2)."""
    if begin <= 0:
        return np.zeros(len(times), np.int64)
    return np.clip((times - begin) // _SECOND, 0, TIME_DIFF_MAX)

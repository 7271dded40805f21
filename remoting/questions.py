"""Questions and pulls to another process of this node, over its local socket, and their answers."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from towline.errors import LinkRefused, MalformedFrame, TowlineError
from towline.format.wire.frames import (
    ANSWER,
    ASK,
    PULL_ANSWER,
    Buffer,
    Kind,
    Pull,
    decode_put_answer,
    encode_pull,
    expect,
    json_part,
    kind_of,
    read_json,
)
from towline.limits import MIB
from towline.link.dealer import Link
from towline.node.peers.local_links import LocalLink

ASKED_MAX: Final = 65_536  # without an answer
FLIGHT_MAX: Final = 256  # of them on their way, further ones wait here: who asks for more at once is cut off for all
FLIGHT_BYTES: Final = 2 * MIB  # the same in bytes, beside one question
WAITING_BYTES: Final = 16 * MIB  # of those that wait here
TOO_LONG: Final = "TOO_LONG"
Facts: TypeAlias = Mapping[str, Any]
# Gets the facts of an answer, or of a refusal, and what follows them; None where the answer was lost.
Told: TypeAlias = Callable[[Facts | None, list[Buffer]], None]
# Gets the parts of an answer, none where it was lost.
Received: TypeAlias = Callable[[list[Buffer]], None]
Ask: TypeAlias = Callable[[str, Facts, Told], bool]


class Questions:
    """Questions over a link that comes back after each loss. Used by one thread."""

    def __init__(self, local: LocalLink, size_max: int, lost: Callable[[], None] = lambda: None) -> None:
        """`size_max` bytes of a question are taken there: a longer one would cost everybody the link. `lost` is called
        when the link has ended, before its questions are answered by None."""
        self._local, self._size_max, self._lost = local, size_max, lost
        self._link: Link | None = None
        self._asked: dict[int, Received] = {}
        self._on_the_way = self._on_the_way_bytes = 0  # of questions that are answered at once
        self._waiting: deque[tuple[bytes, Received]] = deque()
        self._waiting_bytes = 0
        self._next_id = 0
        self._before: Callable[[], None] | None = None

    @property
    def welcome(self) -> Facts:
        return self._local.welcome

    @property
    def link(self) -> Link | None:
        """The link as `cycle` found it."""
        return self._link

    def before(self, told: Callable[[], None]) -> None:
        """`told` is called before each question, and may ask some itself."""
        self._before = told

    def cycle(self, now_ms: int) -> int:
        """Connects, takes answers, sends questions that wait; returns how many answers."""
        link = self._local.open(now_ms)
        if link is not self._link:
            self._give_up()
            self._link = link
        if link is None:
            return 0
        done = 0
        try:
            while (parts := link.receive()) is not None:
                self._answered(parts)
                done += 1
        except (LinkRefused, MalformedFrame) as error:
            self.lose(now_ms, error)
        self._send_waiting()
        return done

    def ask(self, op: str, facts: Facts, told: Told, *, held: bool = False, own: Facts | None = None) -> bool:
        """Asks. False, and `told` is never called, where the other process is away or does not answer. `own` facts are
        this process's own, and do not count where names may be too long.

        A question that is too long is refused before this returns. One that is `held` is answered when something
        happens; of all others so many are on their way at once as do not make the other process's answers too many.
        """
        question = json_part({"op": op, **facts})
        if len(question) > self._size_max:
            why = f"the names in the request take {len(question)} bytes; {self._size_max} are allowed"
            told({"error": TOO_LONG, "sentence": why}, [])
            return True
        if own:
            question = json_part({"op": op, **facts, **own})

        def received(parts: list[Buffer]) -> None:
            if not parts:
                told(None, [])
                return
            found = read_json(parts[1])
            told({"error": "", **found} if expect(ANSWER, parts[0])[1] else found, parts[2:])

        if held:
            return self.request(lambda number: [ASK.pack(Kind.ASK, number), question], received)
        if self._link is None or len(self._asked) + len(self._waiting) >= ASKED_MAX:
            return False
        if self._waiting_bytes + len(question) > WAITING_BYTES:
            return False
        if self._before is not None:
            self._before()
        self._waiting.append((question, received))
        self._waiting_bytes += len(question)
        self._send_waiting()
        return True

    def _send_waiting(self) -> None:
        """Sends questions in their order, while few enough are on their way."""
        while self._waiting and self._link is not None:
            question, received = self._waiting[0]
            size = len(question)
            if self._on_the_way >= FLIGHT_MAX or self._on_the_way_bytes > FLIGHT_BYTES:
                return

            def answered(parts: list[Buffer], size: int = size, received: Received = received) -> None:
                self._on_the_way -= 1
                self._on_the_way_bytes -= size
                received(parts)

            self._next_id += 1
            if not self._link.send([ASK.pack(Kind.ASK, self._next_id), question]):
                return
            self._asked[self._next_id] = answered
            self._on_the_way += 1
            self._on_the_way_bytes += size
            self._waiting.popleft()
            self._waiting_bytes -= size

    def request(self, parts_of: Callable[[int], list[Buffer]], received: Received) -> bool:
        """Sends the parts of a request with the number that they are made for. `received` gets those of its answer."""
        if self._link is None or len(self._asked) >= ASKED_MAX:
            return False
        if self._before is not None:
            self._before()
        self._next_id += 1
        if not self._link.send(parts_of(self._next_id)):
            return False
        self._asked[self._next_id] = received
        return True

    def pull(self, pull: Pull, received: Received) -> bool:
        """Sends a pull. `received` gets the parts of its answer."""
        return self.request(lambda number: list(encode_pull(replace(pull, request_id=number))), received)

    def lose(self, now_ms: int, why: TowlineError | None = None) -> None:
        self._local.lose(now_ms, why)
        self._link = None
        self._give_up()

    def close(self) -> None:
        self._asked.clear()
        self._waiting.clear()
        self._link = None
        self._lost()
        self._local.close()

    def _answered(self, parts: list[Buffer]) -> None:
        match kind_of(parts[0]):
            case Kind.ANSWER if len(parts) > 1:
                number = expect(ANSWER, parts[0])[2]
            case Kind.PULL_ANSWER:
                number = expect(PULL_ANSWER, parts[0])[3]
            case Kind.PUT_ANSWER:
                number = decode_put_answer(parts[0]).request_id
            case kind:
                raise MalformedFrame(f"a message of kind {kind} answers nothing")
        received = self._asked.pop(number, None)
        if received is not None:
            received(parts)

    def _give_up(self) -> None:
        self._lost()
        asked, self._asked = list(self._asked.values()), {}
        asked += [received for _, received in self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        for received in asked:
            received([])


def ask_in_turn(
    ask: Ask, questions: Iterable[tuple[str, Facts]], then: Callable[[list[Facts], Facts | None], None]
) -> None:
    """Asks one after the other, each when the one before is answered, so that nobody is held up; until one is refused.

    `then` gets the answers, and a refusal, which is {} where there was none and None where an answer was lost. It may
    be called before this returns.
    """
    answers: list[Facts] = []
    left = iter(questions)

    def go_on() -> None:
        question = next(left, None)
        if question is None:
            then(answers, {})
        elif not ask(*question, told):
            then(answers, None)

    def told(facts: Facts | None, _: list[Buffer]) -> None:
        if facts is None or "error" in facts:
            then(answers, facts)
            return
        answers.append(facts)
        go_on()

    go_on()


def refusal_in(facts: Facts | None, who: str) -> str:
    """Why a question was not answered with what it asked for; "" if it was."""
    if facts is None:
        return f"{who} has ended or does not answer"
    return str(facts.get("sentence") or facts["error"]) if "error" in facts else ""

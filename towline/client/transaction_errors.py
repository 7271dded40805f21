"""The errors of transactions."""

from typing import Final

from towline.errors import Remedy, TowlineError

_ENDED: Final = "nothing is to be done: it has ended, by another producer of the group, a check, or a first attempt"
REMEDIES: Final = {
    "ALREADY_COMMITTED": _ENDED,
    "ALREADY_ROLLED_BACK": _ENDED,
    "ALREADY_PUT_ASIDE": "read its message from TRANS_CHECK_MAX_TIME_TOPIC, and send it anew if it is wanted",
    "ALREADY_ENDED": "look up its unique key in the topic: the message is there if it was committed",
    "ANOTHER_GROUP": "end it with a producer of the group that began it",
    "NO_SUCH_TRANSACTION": "give back what `begin` gave; if the node lost its log's end, begin it again",
    "NOT_READABLE_YET": "end it again in a moment: disk or slave lag behind",
    "TOO_MANY": "end it again in a moment: the node has enough to do",
}


class TransactionRefused(TowlineError):
    """The node did not end a transaction. Facts: why, by name; sentence; transaction.

    ALREADY_COMMITTED, ALREADY_ROLLED_BACK  it has ended; so it is said, too, when the first answer got lost
    ALREADY_PUT_ASIDE                       it was checked too often
    ALREADY_ENDED                           it has ended, too long ago to tell how
    ANOTHER_GROUP, NO_SUCH_TRANSACTION      it is not this group's, or never was
    NOT_READABLE_YET, TOO_MANY              disk or slave lag behind, or too many end at once; ask again
    the name of a put's status              the message could not be stored; the transaction is open still
    """

    remedy = Remedy.FIX_CALL

    def __init__(self, name: str, sentence: str, transaction: str) -> None:
        self.name, self.sentence, self.transaction = name, sentence, transaction
        super().__init__(name, sentence, transaction)

    @property
    def advice(self) -> str:  # type: ignore[override]
        return REMEDIES.get(self.name, "the transaction is open still: end it again when what is named is mended")

    def describe(self) -> str:
        return f"transaction {self.transaction}: {self.name}: {self.sentence}"


class IllegalTransaction(TowlineError):
    """A text that is no transaction. Facts: the text."""

    remedy = Remedy.FIX_CALL
    advice = "give back what str() of a transaction gave"

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    def describe(self) -> str:
        return f"{self.text!r} is no transaction"

"""The errors of transactions."""

from towline.errors import Remedy, TowlineError


class TransactionRefused(TowlineError):
    """The node did not end a transaction. Facts: why, by name; sentence; transaction.

    ALREADY_COMMITTED, ALREADY_ROLLED_BACK  it has ended; so it is said, too, when the first answer got lost
    ALREADY_PUT_ASIDE                       it was checked too often
    ALREADY_ENDED                           it has ended, too long ago to tell how
    ANOTHER_GROUP, NO_SUCH_TRANSACTION      it is not this group's, or never was
    NOT_READABLE_YET                        disk or slave lag behind; ask again
    the name of a put's status              the message could not be stored; the transaction is open still
    """

    remedy = Remedy.FIX_CALL
    advice = "look at the name: only NOT_READABLE_YET and what could not be stored may be tried again"

    def __init__(self, name: str, sentence: str, transaction: str) -> None:
        self.name, self.sentence, self.transaction = name, sentence, transaction
        super().__init__(name, sentence, transaction)

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

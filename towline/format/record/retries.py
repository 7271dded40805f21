"""A message that a consumer could not handle, once more: for the retry topic, or as a dead letter (spec 11.2)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from . import property_crc
from .forms import CARRIED, StoredForm
from .properties import OF_THE_STORE
from .properties import decode as decode_properties
from .properties import encode as encode_properties
from .record import TRANSACTION_MASK, Record, encode

FIRST_LEVEL: Final = 3  # of the delay before a message comes for the second time; the next one is one higher
RETRIES_DEFAULT: Final = 16  # then it is a dead letter
TIMES_MAX: Final = 2**31 - 1  # of RECONSUMETIMES in a record


def sent_back(
    record: Record, form: StoredForm, more: Mapping[str, str], reconsume_times: int, *, append_property_crc: bool
) -> bytes:
    """The bytes of a received record once more, in this form: same body, born time, flag and unique key.

    For a dead letter the form has the dead-letter topic and no pairs. `more` are further properties, such as
    RETRY_TOPIC; what an earlier form left behind is taken out. Raises IllegalProperty, MalformedRecord.
    """
    kept = decode_properties(record.properties)
    for name in (*OF_THE_STORE, *CARRIED):
        kept.pop(name, None)
    properties = encode_properties(({**kept, **more, **dict(form.pairs)}).items())
    if append_property_crc:
        properties = property_crc.appended(properties)
    return encode(
        replace(
            record,
            topic=form.topic.encode(),
            queue_id=form.queue_id,
            properties=properties,
            sys_flag=record.sys_flag & ~TRANSACTION_MASK,
            queue_offset=0,
            physical_offset=0,
            store_timestamp=0,
            reconsume_times=reconsume_times,
            prepared_transaction_offset=0,
        )
    )

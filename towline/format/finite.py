"""Numbers in JSON of others: what a double cannot hold is refused where it is read.

JSON allows 1e999, and Python reads Infinity and NaN as well; `int` of such a number raises OverflowError, which nobody
who looks for a wrong fact expects. These are `parse_float` and `parse_constant` of `json.loads`.
"""

import math


def finite(text: str) -> float:
    """Raises ValueError."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:20]} is too large for a double")
    return number


def no_number(name: str) -> float:
    """Raises ValueError."""
    raise ValueError(f"{name} is no number of JSON")

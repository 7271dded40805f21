"""`python -m towline.kernels`: compiles every kernel into the cache, so that the first start of a node is fast."""

import sys
import time

from towline.kernels.jit.load import load_tools


def show(done: int, of: int) -> None:
    """A line that is written over, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rcompiling: {done} of {of}" + ("\n" if done == of else ""))
        sys.stderr.flush()


if __name__ == "__main__":
    started = time.perf_counter()
    count = load_tools(show)
    sys.stdout.write(f"{count} kernels ready in {time.perf_counter() - started:.1f} s\n")

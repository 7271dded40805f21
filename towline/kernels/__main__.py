"""`python -m towline.kernels`: compiles every kernel into the cache, so that the first start of a node is fast."""

import sys
import time

from towline.kernels.jit.load import load_tools

if __name__ == "__main__":
    started = time.perf_counter()
    count = load_tools()
    sys.stdout.write(f"{count} kernels ready in {time.perf_counter() - started:.1f} s\n")

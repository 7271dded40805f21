"""`python -m towline.slave --store DIR`: runs a slave node, its supervisor in the foreground."""

import sys

from towline.node.process.main import run_node

if __name__ == "__main__":
    sys.exit(run_node("slave", sys.argv[1:]))

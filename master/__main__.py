"""`python -m towline.master --store DIR`: a master node, its supervisor in the foreground."""

import sys

from towline.node.process.main import run_node

if __name__ == "__main__":
    sys.exit(run_node("master", sys.argv[1:]))

"""`python -m towline.flush --store DIR`: the flush process of a running node, started by hand."""

from towline.node.process.worker import main

if __name__ == "__main__":
    main("flush")

"""`python -m towline.reput --store DIR`: the reput process of a running node, started by hand."""

from towline.node.process.worker import main

if __name__ == "__main__":
    main("reput")

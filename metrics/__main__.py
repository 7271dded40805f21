"""`python -m towline.metrics --store DIR`: the metrics process of a running node, started by hand."""

from towline.node.process.worker import main

if __name__ == "__main__":
    main("metrics")

"""`python -m towline.allocate --store DIR`: the allocate process of a running node, started by hand."""

from towline.node.process.worker import main

if __name__ == "__main__":
    main("allocate")

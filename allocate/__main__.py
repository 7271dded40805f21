"""`python -m allocate --store DIR`: the allocate process of a running node, started by hand."""

from towline.node.piece import main

if __name__ == "__main__":
    main("allocate")

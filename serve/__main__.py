"""`python -m towline.serve --store DIR`: the serve process of a running node, started by hand."""

from towline.node.process.worker import main

if __name__ == "__main__":
    main("serve")

"""`python -m towline.remoting --store DIR`: the remoting process of a running node, started by hand."""

from towline.node.process.worker import main

if __name__ == "__main__":
    main("remoting")

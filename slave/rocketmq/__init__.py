"""A master that is a broker of RocketMQ: its log by HAService's frames, its metadata as its own slaves ask for them."""

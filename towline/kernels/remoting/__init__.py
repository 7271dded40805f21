"""Kernels of RocketMQ's remoting protocol: what its clients send, as far as it is plain."""

"""RocketMQ's remoting protocol: frames, their headers, the fields of each request, and the JSON bodies (spec 11)."""

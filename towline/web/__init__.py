"""The live page of a cluster: an ASGI app that asks the nodes while a browser looks, and tells it what has changed.

source     asks the nodes, with the client's own questions
shown      the parts of a node's status that the page shows: pure
changes    what differs between two states of them: pure
hub        one collector for all browsers, and none without any
questions  what a person asks once: a topic, a group, messages, a body
reports    results of drills and benchmarks in a directory
guard      who may ask, and the headers of every answer
app, server  the routes, and the process that serves them
static     the page: HTML, CSS and modules of JavaScript, as they stand there
"""

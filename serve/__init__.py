"""The serve process: pulls, long polling and lookups, on master and slave alike.

owns     no position and no file
reads    DISPATCHED, APPENDED, LOG_MIN, queue ends; CommitLog, ConsumeQueue and IndexFile bytes, config/topics.json
asks     nobody
answers  consumers and whoever looks messages up; never with a byte beyond what reput published
dies     safely at any point: it keeps nothing, and who was waiting asks again
"""

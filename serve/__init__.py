"""The serve process: pulls, long polling, lookups on master and slave alike; consumer groups on a master (groups/).

owns     serve: DAMAGED, DAMAGED_NEWEST; get_stats of the runtime directory; on a master consumerOffset.json,
         subscriptionGroup.json, consumerFilter.json and messageRequestMode.json of config/
reads    DISPATCHED, APPENDED, LOG_MIN, FILTERS, queue ends; CommitLog, ConsumeQueue, ConsumeQueueExt and IndexFile
         bytes, config/topics.json; on a slave the three files as they followed from its master
asks     nobody
answers  consumers and whoever searches messages; never with a byte beyond what reput published
dies     safely at any point: each file is replaced whole; offsets go back by an interval at most, members join again,
         and who was waiting asks again
"""

"""The metrics process: Prometheus reads the node's figures here, and probes whether it lives and is ready.

owns     metrics: nothing that is stored
reads    every position, duty's line and statistic of the node, as a scrape comes; run/node.json and run/link.json;
         config/topics.json, subscriptionGroup.json and consumerOffset.json; queue ends; of the store one ConsumeQueue
         entry and the head of one record for some queues that a group has not read to their end
asks     nobody
answers  HTTP: /metrics, /live, /ready
dies     safely at any point: it starts before the store is recovered, and everybody else goes on without it
"""

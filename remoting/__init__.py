"""The remoting process: RocketMQ's own clients and tools connect here, to one TCP port.

owns     remoting: the connections, and which popped messages are out; nothing that is stored
reads    config/topics.json and subscriptionGroup.json; the statistics of put and serve; for plain pulls on a master
         APPENDED or COMMITTED, LOG_MIN, queue ends, ConsumeQueue and CommitLog bytes; for tools the slaves, IN_SYNC
asks     put to store what producers send, through a ring in shared memory, and to make topics, over its socket;
         schedule to end transactions; serve for other pulls, lookups, times and groups;
         its peers, for who the master is and which slaves may be read
answers  RocketMQ's remoting requests: what a name server is asked; on a master everything else as a broker, on a
         slave that may be read what consumers read
dies     safely at any point: what was not answered is sent again by its client, to whom its connection is lost
"""

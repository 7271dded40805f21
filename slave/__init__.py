"""What makes up a slave: follows the master's metadata (promotion comes with epochs).

owns     follow: PROMISED; ha/promise.json; of config/ topics.json, subscriptionGroup.json, consumerOffset.json,
         consumerFilter.json, delayOffset.json, timerOffset.json, transactionOffset.json and queueFloors.json
reads    nothing
asks     the master's ha process for the files that changed
answers  nobody
dies     safely at any point: each file is replaced whole, with its previous generation kept
"""

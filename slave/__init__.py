"""What makes up a slave: follows the master's metadata (promotion comes with epochs).

owns     topics.json, subscriptionGroup.json, consumerOffset.json, consumerFilter.json, delayOffset.json,
         timerOffset.json, transactionOffset.json of a slave
reads    nothing
asks     the master's ha process for the files that changed
answers  nobody
dies     safely at any point: each file is replaced whole, with its previous generation kept
"""

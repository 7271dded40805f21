"""Consumer groups, as the broker keeps them: who is a member, how far each group has read, who has locked which queue.

errors      what is refused, by name
members     membership: pure, time is an argument
locks       queue locks: pure
offsets     offsets and their bounds: pure
table       settings of the groups: pure
questions   the JSON of a question, checked
files       the two files and the thread that writes them
service     joins them: answers questions, holds watches, checks the clock
slave       what a slave answers, from the files that follow the master's, and what it forwards
wiring      builds the groups of a node for the duty cycle of serve
"""

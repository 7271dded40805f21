"""Towline beside other servers: the same work, in turns, on one machine.

plan      what is done, and what is found
works     all that is done in a run, quick and full
systems   what a system has; nats, redis, rocketmq, kafka, towlines, rings, remotings: one each,
          towline_node: Towline's server, python_api: what Python code gets of it
client    a client process: reads orders from standard input, answers on standard output; `client_process` starts it
sitting   a system does works of one setup on a server of its own; `usage`: what that takes
harness   takes turns, noted in `journal`; ratios: medians, and ours beside the best peer; goals: what is to be reached
machine   the limits of the machine, in the same run
report    what people read: tables, and in `pictures` plots and one page
"""

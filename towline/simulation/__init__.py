"""A group of nodes under a simulated clock, network and disk: the decisions of the product, one seed, one history.

What decides is imported from the product. What is simulated is what decisions are about: time, messages, files,
processes that end (docs/decisions/0092).
"""

"""The put process of a master: receives requests, appends them to the log and acknowledges them."""

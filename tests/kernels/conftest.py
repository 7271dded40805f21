"""No time limit for a single example: on a busy machine it would fail tests that say nothing about time."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

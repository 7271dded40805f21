"""The clients for asyncio: each call is awaited, cancelled without losing anything, and made on no thread of its own.

A client has one thread for what waits (beside the producer's I/O thread), however many tasks use it.
"""

from .admin import AsyncAdminClient
from .consumer import AsyncConsumer, AsyncGroupConsumer
from .producer import AsyncProducer

__all__ = ["AsyncAdminClient", "AsyncConsumer", "AsyncGroupConsumer", "AsyncProducer"]

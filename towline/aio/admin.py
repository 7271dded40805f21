"""Questions to a node, and changes of it, for asyncio."""

from collections.abc import Callable
from typing import Any, Unpack

from towline.client.admin import AdminClient
from towline.client.link.endpoints import Endpoints
from towline.client.link.rpc import Reply

from .options import AdminOptions
from .threaded import Threaded, awaited


class AsyncAdminClient(Threaded[AdminClient]):
    """`AdminClient` for asyncio: the same arguments and calls, each awaited. Any number of tasks may use it."""

    def __init__(self, endpoint: Endpoints | Callable[[], Endpoints], **options: Unpack[AdminOptions]) -> None:
        super().__init__(AdminClient(endpoint, **options), "admin")

    async def ask(self, op: str, **facts: Any) -> Reply:
        """Asks any question; the reply has the answer's facts, and its records in columns."""
        return await self._call(self._client.ask, op, **facts)

    async def configure_group(self, group: str, **settings: Any) -> dict[str, Any]:
        """Changes settings of a group (`AdminClient.configure_group`)."""
        return await self._call(self._client.configure_group, group, **settings)

    welcome = awaited(AdminClient.welcome)
    topics = awaited(AdminClient.topics)
    create_topic = awaited(AdminClient.create_topic)
    alter_topic = awaited(AdminClient.alter_topic)
    delete_topic = awaited(AdminClient.delete_topic)
    node_status = awaited(AdminClient.node_status)
    node_stats = awaited(AdminClient.node_stats)
    node_segments = awaited(AdminClient.node_segments)
    node_settings = awaited(AdminClient.node_settings)
    configure_node = awaited(AdminClient.configure_node)
    forget_settings = awaited(AdminClient.forget_settings)
    bounds = awaited(AdminClient.bounds)
    by_key = awaited(AdminClient.by_key)
    by_unique_key = awaited(AdminClient.by_unique_key)
    by_id = awaited(AdminClient.by_id)
    by_offset = awaited(AdminClient.by_offset)
    offset_at = awaited(AdminClient.offset_at)
    by_time = awaited(AdminClient.by_time)
    groups = awaited(AdminClient.groups)
    describe_group = awaited(AdminClient.describe_group)
    group_offsets = awaited(AdminClient.group_offsets)
    reset_offsets = awaited(AdminClient.reset_offsets)
    set_offset = awaited(AdminClient.set_offset)
    delete_group = awaited(AdminClient.delete_group)
    transaction_status = awaited(AdminClient.transaction_status)
    open_transactions = awaited(AdminClient.open_transactions)

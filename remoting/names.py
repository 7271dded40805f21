"""What a name server is asked, on masters and slaves: routes, brokers, topics, and values, of which none is kept."""

from typing import Final

from towline.errors import MalformedFrame
from towline.format.remoting.admin_bodies import topic_list
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import ConfigKey, OfBroker, OfCluster, OfNamespace, OfTopic, read_header
from towline.format.remoting.properties_text import properties_text
from towline.runtime.settings import Settings

from .connections import SILENT_S, Answer
from .requests import Handle
from .topics import TopicRoutes

FIXED: Final = "what a name server is set to is what its node is set to, and changes when the node is started"


class Names:
    """Handles the requests of a name server, by this node's own copy of the topics."""

    def __init__(self, topics: TopicRoutes, settings: Settings) -> None:
        self._topics, self._settings = topics, settings

    def placed(self) -> dict[int, Handle]:
        """By request code: what has addresses in its answer, so that the master has to be known."""
        topics = self._topics
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: topics.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: topics.cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: topics.own_names,
        }

    def handlers(self) -> dict[int, Handle]:
        """By request code: everything else."""
        return {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._forget_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._permit,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._permit,
            RequestCode.GET_KV_CONFIG: self._value,
            RequestCode.DELETE_KV_CONFIG: self._forget_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._values,
            RequestCode.GET_NAMESRV_CONFIG: self._config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._refuse_config,
        }

    # --- topics

    def _all_topics(self, _: Command, answer: Answer) -> None:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        self._topics.refresh()
        answer(ResponseCode.SUCCESS, body=topic_list(sorted(self._topics.table.topics)))

    def _topics_of_cluster(self, request: Command, answer: Answer) -> None:
        """GET_TOPICS_BY_CLUSTER: none of a cluster that is not this one. Raises MalformedFrame."""
        if read_header(OfCluster, request.fields).cluster == self._settings.broker_cluster_name:
            self._all_topics(request, answer)
        else:
            answer(ResponseCode.SUCCESS, body=topic_list(()))

    def _forget_topic(self, request: Command, answer: Answer) -> None:
        """DELETE_TOPIC_IN_NAMESRV: routes follow the topics, so there is nothing left to do. Raises MalformedFrame."""
        read_header(OfTopic, request.fields)
        answer(ResponseCode.SUCCESS)

    def _permit(self, request: Command, answer: Answer) -> None:
        """WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER: whether the routes of this node let producers choose
        the broker, as long as this process runs. Raises MalformedFrame."""
        wipes = request.code == RequestCode.WIPE_WRITE_PERM_OF_BROKER
        name = read_header(OfBroker, request.fields).broker_name
        count = 0
        if name == self._settings.broker_name:
            self._topics.writable = not wipes
            count = len(self._topics.table.topics)
        answer(ResponseCode.SUCCESS, {"wipeTopicCount" if wipes else "addTopicCount": str(count)})

    # --- values and settings

    def _value(self, request: Command, answer: Answer) -> None:
        """GET_KV_CONFIG: none is kept here. Raises MalformedFrame, RequestRefused."""
        header = read_header(ConfigKey, request.fields)
        why = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, why)

    def _values(self, request: Command, answer: Answer) -> None:
        """GET_KVLIST_BY_NAMESPACE: none is kept here. Raises MalformedFrame, RequestRefused."""
        namespace = read_header(OfNamespace, request.fields).namespace
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")

    def _forget_value(self, request: Command, answer: Answer) -> None:
        """DELETE_KV_CONFIG, which deleteTopic asks for too: there is none to delete. Raises MalformedFrame."""
        read_header(ConfigKey, request.fields)
        answer(ResponseCode.SUCCESS)

    def _config(self, _: Command, answer: Answer) -> None:
        """GET_NAMESRV_CONFIG: what RocketMQ has a name for."""
        settings = self._settings
        told = {
            "bindAddress": settings.listen_host,
            "listenPort": str(settings.name_server_port or settings.listen_port),
            "serverChannelMaxIdleTimeSeconds": str(int(SILENT_S)),
        }
        answer(ResponseCode.SUCCESS, body=properties_text(told))

    def _refuse_config(self, request: Command, answer: Answer) -> None:
        """UPDATE_NAMESRV_CONFIG. Raises MalformedFrame, RequestRefused."""
        if not request.body:
            raise MalformedFrame("the body has lines of name=value")
        raise RequestRefused(ResponseCode.NO_PERMISSION, FIXED)

"""Reading a real `broker.conf`: Java properties with RocketMQ's spelling of the keys."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from towline.errors import UnreadableSettings

# Keys of RocketMQ 4.9 and 5.x (BrokerConfig, MessageStoreConfig, the Netty, auth and tiered store configurations) that
# mean nothing to Towline: name servers, thread pools, DLedger, RocksDB, timers and the like.
_NOT_APPLICABLE: Final = """
    abortFile accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues
    ackMessageThreadPoolNums ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond
    aclEnable adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable
    appendAckAsync appendCkAsync asyncSendEnable authConfigPath authenticationEnabled
    authenticationMetadataProvider authenticationProvider authenticationStrategy authenticationWhitelist
    authorizationEnabled authorizationMetadataProvider authorizationProvider authorizationStrategy
    authorizationWhitelist autoDeleteUnusedStats batchDispatchRequestThreadPoolNums bindAddress
    bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond
    broadcastOffsetExpireSecond brokerConfigPath brokerElectionPriority brokerFastFailureEnable
    brokerHeartbeatInterval brokerIP2 brokerNotActiveTimeoutMillis brokerTopicEnable cgColdReadThreshold
    channelExpiredTimeout channelNotActiveInterval checkSyncStateSetPeriod checkTransactionMessageEnable
    cleanOfflineBrokerInterval cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval
    clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientManagerThreadPoolQueueCapacity
    clientManageThreadPoolNums clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
    clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads clusterName clusterTopicEnable
    coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable combineAssignOffsetCQType
    combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
    commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount
    commercialTransCount commitLogForceSwapMapInterval commitLogRollingInterval commitLogRollingMinimumSize
    commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize compactionMappedFileSize
    compactionScheduleInternal compactionThreadNum compatibleWithOldNameSrv compressedRegister configBlackList
    configManagerVersion configName connectTimeoutMillis consumerFallbehindThreshold
    consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums consumerOffsetUpdateVersionStep
    controllerAddr controllerHeartBeatTimeoutMills correctLogicMinOffsetForceInterval
    correctLogicMinOffsetSleepInterval dataReadAheadEnable debugLockEnable defaultMessageRequestMode
    defaultPopShareQueueNum delayOffsetUpdateVersionStep disableCallbackExecutor
    disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup disappearTimeAfterStart diskFallRecorded
    dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread dLegerGroup dLegerPeers dLegerSelfId
    duplicationEnable enableAcceleratedRecovery enableAsyncReput enableBatchPush enableBroadcastOffsetStore
    enableBuildConsumeQueueConcurrently enableCleanExpiredOffset enableCompaction enableConnectionMetrics
    enableControllerMode enableCreateSysGroup enableDetailStat enableDLegerCommitLog enableFastChannelEventProcess
    enableLagAndDlqMetrics enableLmq enableLmqStats enableLogConsumeQueueRepeatedlyBuildWhenRecover
    enableMessageStoreMetrics enableMixedMessageType enableMultiDispatch enableNetWorkFlowControl
    enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge
    enablePopLog enablePopMessageThreshold enablePopMetrics enableReconnectForGoAway enableRegisterProducer
    enableRemoteEscape enableRemotingMetrics enableRequestMetrics enableRetryTopicV2 enableRocksDBLog
    enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats enableShutdownGracefully
    enableSingleTopicRegister enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitMetadata
    enableSplitRegistration enableStatsMetrics enableTransactionMetrics endTransactionPoolQueueCapacity
    endTransactionThreadPoolNums estimateAccumulation fetchControllerAddrByDnsLookup
    fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval filterDataCleanTimeSpan
    filterServerNums filterSupportRetry flushConsumerOffsetHistoryInterval forceRegister forwardTimeout
    globalColdReadThreshold heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode
    inBrokerContainer initAuthenticationUser initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials
    isEnableBatchPush isolateLogEnable litePullMessageEnable litePullMessageThreadPoolNums
    litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
    loadBalanceThreadPoolQueueCapacity lockInStrictMode logicalDiskSpaceCleanForciblyThreshold
    logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
    mappedFileSizeTimerLog mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
    maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxLmqConsumeQueueNum maxOffsetMapSize
    maxPopPollingSize maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles maxSlaveResendLength
    maxStatsIdleTimeInMinutes maxTopicLength memTableFlushIntervalMs messageIndexSafe messageStorePlugIn
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
    metricsExporterType metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
    metricsOtelCardinalityLimit migrateAuthFromV1Enabled
    msgTraceTopicName namesrvAddr namesrvDomain namesrvDomainSubgroup notifyConsumerIdsChangedEnable
    objectStoreAccessKey objectStoreBucket objectStoreEndpoint objectStoreSecretKey popCkMaxBufferSize
    popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit
    popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
    popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
    popPollingSize popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
    preferredLeaderId printChannelGroups printChannelGroupsMinNum processReplyMessageThreadPoolNums
    pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout putMsgIndexHightWater
    putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity readAheadCacheEnable
    readAheadCacheExpireDuration readAheadCacheSizeThresholdRate readAheadMessageCountThreshold
    readAheadMessageSizeThreshold readOnlyCommitLogStorePaths readUnCommitted realTimeNotifyConsumerChange
    realTimePersistRocksDBConfig recallMessageEnable recheckReputOffsetFromCq recordGetMessageResult
    recoverConcurrently recoverThreadPoolNums regionId registerBrokerTimeoutMills registerNameServerPeriod
    rejectPullConsumerEnable rejectTransactionMessage replicasPerDiskPartition replyThreadPoolQueueCapacity
    retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime
    rmqAddressServerDomain rocketmqHome rocksdbCompressionType rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps scanAvailableNameSrv
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable
    sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverAsyncSemaphoreValue
    serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable
    serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
    serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shutdownWaitTimeSeconds skipPreOnline skipWhenCKRePutReachMaxTimes socksProxyConfig
    spinLockCollisionRetreatOptimalDegree splitMetadataSize splitRegistrationSize startAcceptSendRequestTimeStamp
    statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum statRocksDBCQIntervalSec
    storeCheckpoint storePathBrokerIdentity storePathConsumeQueue storePathDLedgerCommitLog storePathEpochFile
    storePathIndex storeReplyMessageEnable storeType subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
    syncBrokerMetadataPeriod syncControllerMetadataPeriod syncMasterFlushOffsetWhenStartup
    tieredBackendServiceProvider tieredMetadataServiceProvider tieredStorageLevel tieredStoreCommitLogMaxSize
    tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable tieredStoreDeleteFileEnable
    tieredStoreDeleteFileInterval tieredStoreFilePath tieredStoreFileReservedTime tieredStoreGroupCommit
    tieredStoreGroupCommitCount tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout
    tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount
    tieredStoreMaxPendingLimit timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics
    timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum timerInterceptDelayLevel
    timerMetricSmallThreshold timerPrecisionMs timerProgressLogIntervalMs timerPutMessageThreadNum
    timerRollWindowSlot timerSkipUnknownError timerStopEnqueue timerWheelEnable topicQueueLockNum traceOn
    traceTopicEnable transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
    transferMsgByHeap travelCqFileNumWhenGetMessage updateNameServerAddrPeriod useABSLock useEpollNativeSelector
    usePIDColdCtrStrategy userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    useReentrantLockWhenPutMessage useServerSideResetOffset useStaticSubscription useTLS
    validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
    waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue
    waitTimeMillsInTransactionQueue writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
"""
NOT_APPLICABLE: Final = frozenset(_NOT_APPLICABLE.split())


def read_broker_conf(path: Path) -> Mapping[str, str]:
    """Key -> value as text; Java reads the file as Latin-1 with \\u escapes, and so does this."""
    import javaproperties  # here, because with it come XML and HTTP, which every process would pay for

    try:
        with path.open("rb") as file:
            read: Mapping[str, str] = javaproperties.load(file)
    except OSError as error:
        raise UnreadableSettings(str(path), error.strerror or str(error)) from error
    except ValueError as error:  # a malformed \\u escape
        raise UnreadableSettings(str(path), str(error)) from error
    return {key: value.strip() for key, value in read.items()}

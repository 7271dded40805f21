package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const many = 100

// placing sends a message to the queue that it names, and others in turn.
type placing struct {
	inTurn producer.QueueSelector
}

func (p placing) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if m.Queue != nil {
		return m.Queue
	}
	return p.inTurn.Select(m, queues, last)
}

type sender struct {
	rocketmq.Producer
	topic string
}

func newSender(address, topic, group string, selector producer.QueueSelector) sender {
	made, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{address}),
		producer.WithGroupName(group),
		producer.WithInstanceName(group),
		producer.WithQueueSelector(selector),
		producer.WithRetry(0),
	)
	must(err)
	must(made.Start())
	return sender{made, topic}
}

// say sends messages, more than one as a batch, and prints what the answer says.
func (s sender) say(what string, messages ...*primitive.Message) *primitive.SendResult {
	result, err := s.SendSync(background, messages...)
	must(err)
	ids := strings.Split(result.OffsetMsgID, ",")
	fmt.Println(what, result.Status, "key", len(result.MsgID), "ids", len(ids), len(ids[0]),
		"region", result.RegionID, "traced", result.TraceOn, "transaction", len(result.TransactionID))
	return result
}

func produce(address, topic string) {
	s := newSender(address, topic, "go-producers", placing{producer.NewRoundRobinQueueSelector()})
	queue := s.plain(address)
	s.batch(queue)
	s.async()
	s.refused(queue)
	s.later(queue)
	must(s.Shutdown())
	byKey(address, topic)
	transactions(address, topic)
}

func (s sender) plain(address string) *primitive.MessageQueue {
	s.say("first", message(s.topic, "first", "TagA"))
	queues := queuesOf(address, s.topic)
	queue := queues[2]
	fmt.Println("queues", len(queues))
	before := s.say("placed", s.placed("placed", queue)).QueueOffset
	for number := 0; number < 3; number++ {
		again := s.say("placed again", s.placed(fmt.Sprint("again", number), queue))
		fmt.Println("queue", again.MessageQueue.QueueId, "behind", again.QueueOffset-before)
	}
	must(s.SendOneWay(background, s.placed("one way", queue)))
	more := s.placed("more", queue)
	more.Flag = -7
	more.WithKeys([]string{"k1", "k2"})
	more.WithProperty("mine", "a value with \u00fcmlauts")
	s.say("more", more)
	large := primitive.NewMessage(s.topic, make([]byte, 10_000)).WithTag("TagF")
	large.Queue = queue
	s.say("compressed", large)
	s.say("without a tag", primitive.NewMessage(s.topic, []byte("bare")))
	return queue
}

func (s sender) placed(body string, queue *primitive.MessageQueue) *primitive.Message {
	m := message(s.topic, body, "TagB")
	m.Queue = queue
	return m
}

func (s sender) batch(queue *primitive.MessageQueue) {
	var messages []*primitive.Message
	for number := 0; number < 32; number++ {
		messages = append(messages, s.placed(fmt.Sprint("batch", number), queue))
	}
	before := s.say("before", s.placed("before", queue)).QueueOffset
	stored := s.say("batch", messages...)
	fmt.Println("behind", stored.QueueOffset-before)
	fmt.Println("behind", s.say("after", s.placed("after", queue)).QueueOffset-before)
}

func (s sender) async() {
	var left sync.WaitGroup
	var failed atomic.Int32
	for number := 0; number < many; number++ {
		left.Add(1)
		done := func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil || result.Status != primitive.SendOK {
				failed.Add(1)
			}
			left.Done()
		}
		must(s.SendAsync(background, done, message(s.topic, fmt.Sprint("async", number), "TagG")))
	}
	left.Wait()
	fmt.Println("async failed", failed.Load())
}

func (s sender) refused(queue *primitive.MessageQueue) {
	nowhere := *queue
	nowhere.QueueId = 999
	s.failing("no such queue", s.placed("nowhere", &nowhere))
	long := s.placed("long", queue)
	long.WithProperty("long", strings.Repeat("x", 32_700))
	s.failing("too long", long)
	s.failing("an illegal topic", message("no/topic", "x", "TagA"))
}

func (s sender) failing(what string, m *primitive.Message) {
	result, err := s.SendSync(background, m)
	if err == nil {
		fmt.Println(what, result.Status)
		return
	}
	code, _, _ := strings.Cut(err.Error(), ",")
	fmt.Println(what, code)
}

func (s sender) later(queue *primitive.MessageQueue) {
	delayed := s.placed("delayed", queue)
	s.say("delayed", delayed.WithDelayTimeLevel(1))
	timed := s.placed("timed", queue)
	timed.WithProperty("TIMER_DELAY_SEC", "1")
	s.say("timed", timed)
}

// byKey: what has one sharding key stands in one queue, in the order in which it was sent.
func byKey(address, topic string) {
	s := newSender(address, topic, "go-by-key", producer.NewHashQueueSelector())
	for number := 0; number < 12; number++ {
		key := fmt.Sprint("key", number%3)
		m := message(topic, fmt.Sprint("keyed", number), "TagK").WithShardingKey(key)
		fmt.Println(key, "in", s.say("keyed", m).MessageQueue.QueueId)
	}
	must(s.Shutdown())
}

var states = map[string]primitive.LocalTransactionState{
	"commit":   primitive.CommitMessageState,
	"rollback": primitive.RollbackMessageState,
	"unknown":  primitive.UnknowState,
}

// ends decides transactions by the bodies of their messages; what is not known is committed when it is asked for.
type ends struct {
	asked *texts
}

func (e ends) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return states[string(m.Body)]
}

func (e ends) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	body := string(m.Body)
	if body != "unknown" {
		return states[body] // a real broker may ask before it has read the end
	}
	e.asked.add(fmt.Sprint("asked for ", body, " ", m.Topic, " ", m.GetTags()))
	return primitive.CommitMessageState
}

func transactions(address, topic string) {
	asked := newTexts()
	made, err := rocketmq.NewTransactionProducer(
		ends{asked},
		producer.WithNameServer([]string{address}),
		producer.WithGroupName("go-transactions"),
		producer.WithInstanceName("go-transactions"),
	)
	must(err)
	must(made.Start())
	for _, body := range []string{"commit", "rollback", "unknown"} {
		result, err := made.SendMessageInTransaction(background, message(topic, body, "TagT"))
		must(err)
		fmt.Println(body, result.Status, result.State, "transaction", len(result.TransactionID))
	}
	eventually(func() bool { return asked.count() > 0 })
	fmt.Println(asked.sorted())
	time.Sleep(500 * time.Millisecond) // the end of one that was asked for goes one way
	must(made.Shutdown())
}

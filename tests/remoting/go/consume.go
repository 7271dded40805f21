package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const count = 40

// judge runs consumers of every kind over one topic.
type judge struct {
	sender
	address string
}

func consume(address, topic string) {
	j := judge{newSender(address, topic, "go-filler", placing{producer.NewRoundRobinQueueSelector()}), address}
	_, err := j.SendSync(background, message(topic, "the topic is there", "TagX"))
	must(err)
	queues := queuesOf(address, topic)
	j.introduce("later") // the client looks for a group's retry topic at its start, and then not for 30 s
	j.fill(queues)
	j.seen("push", count+1, everything)
	j.seen("tag", count/2, tagged("TagA"))
	j.seen("two tags", count, tagged("TagA || TagB"))
	j.seen("sql", 10, consumer.MessageSelector{Type: consumer.SQL92, Expression: "number BETWEEN 10 AND 19"})
	j.again(queues)
	j.broadcasting()
	j.shared(queues)
	j.ordered()
	j.later()
	j.pull(queues)
	j.poll()
	j.replies()
	must(j.Shutdown())
}

var everything = consumer.MessageSelector{}

func tagged(expression string) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
}

// fill sends what all steps read, to the queues in turn.
func (j judge) fill(queues []*primitive.MessageQueue) {
	for number := 0; number < count; number++ {
		m := message(j.topic, fmt.Sprint("m", number), []string{"TagA", "TagB"}[number%2])
		m.Queue = queues[number/2%4]
		m.WithProperty("number", fmt.Sprint(number))
		_, err := j.SendSync(background, m)
		must(err)
	}
}

type handler func(context.Context, *primitive.MessageExt) consumer.ConsumeResult

// start starts a push consumer that hands over one message at a time.
func (j judge) start(
	group, name string, selector consumer.MessageSelector, handle handler, more ...consumer.Option,
) rocketmq.PushConsumer {
	options := append([]consumer.Option{
		consumer.WithNameServer([]string{j.address}),
		consumer.WithGroupName(group + "-" + j.topic),
		consumer.WithInstance(group + name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, more...)
	made, err := rocketmq.NewPushConsumer(options...)
	must(err)
	each := func(ctx context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range all {
			if result := handle(ctx, m); result != consumer.ConsumeSuccess {
				return result, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	must(made.Subscribe(j.topic, selector, each))
	must(made.Start())
	return made
}

func into(found *texts) handler {
	return func(_ context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		found.add(string(m.Body))
		return consumer.ConsumeSuccess
	}
}

func (j judge) introduce(group string) {
	met := newTexts()
	made := j.start(group, "early", tagged("TagX"), into(met))
	eventually(func() bool { return met.count() == 1 })
	must(made.Shutdown())
}

func (j judge) seen(what string, expected int, selector consumer.MessageSelector) {
	found := newTexts()
	made := j.start(strings.ReplaceAll(what, " ", ""), "one", selector, into(found))
	came := eventually(func() bool { return found.count() >= expected })
	time.Sleep(300 * time.Millisecond) // for what should not come
	fmt.Println(what, came, found.sorted())
	must(made.Shutdown())
}

// again: a group goes on where it has ended. What the client commits while it ends may be lost with its connection:
// what counts is committed by the pulls that follow one more message in each queue.
func (j judge) again(queues []*primitive.MessageQueue) {
	first, second := newTexts(), newTexts()
	made := j.start("again", "one", everything, into(first))
	came := eventually(func() bool { return first.count() > count })
	time.Sleep(300 * time.Millisecond) // for the offsets
	j.toAll(queues, "last", "TagL")
	came = eventually(func() bool { return first.count() > count+len(queues) }) && came
	time.Sleep(300 * time.Millisecond)
	must(made.Shutdown())
	j.toAll(queues, "new", "TagN")
	notLast := func(ctx context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		if m.GetTags() == "TagL" {
			return consumer.ConsumeSuccess
		}
		return into(second)(ctx, m)
	}
	made = j.start("again", "two", everything, notLast)
	cameAgain := eventually(func() bool { return second.count() >= len(queues) })
	time.Sleep(300 * time.Millisecond)
	fmt.Println("again", came, cameAgain, second.sorted())
	must(made.Shutdown())
}

// toAll sends one message to each queue.
func (j judge) toAll(queues []*primitive.MessageQueue, text, tag string) {
	for _, queue := range queues {
		m := message(j.topic, fmt.Sprint(text, queue.QueueId), tag)
		m.Queue = queue
		_, err := j.SendSync(background, m)
		must(err)
	}
}

func (j judge) broadcasting() {
	model := consumer.WithConsumerModel(consumer.BroadCasting)
	var members []rocketmq.PushConsumer
	var found []*texts
	for _, name := range []string{"one", "two"} {
		its := newTexts()
		found = append(found, its)
		members = append(members, j.start("broadcasting", name, tagged("TagA"), into(its), model))
	}
	all := func() bool { return found[0].count() >= count/2 && found[1].count() >= count/2 }
	fmt.Println("broadcasting", eventually(all))
	for _, member := range members {
		must(member.Shutdown())
	}
}

// shared: two members divide the queues; when one of them leaves, the other has them all.
func (j judge) shared(queues []*primitive.MessageQueue) {
	var round atomic.Int32
	var members []rocketmq.PushConsumer
	seen := []*texts{newTexts(), newTexts()}
	for place, name := range []string{"one", "two"} {
		its := seen[place]
		handle := func(_ context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
			if strings.HasPrefix(string(m.Body), fmt.Sprint("round", round.Load(), ".")) {
				its.add(fmt.Sprint("queue ", m.Queue.QueueId))
			}
			return consumer.ConsumeSuccess
		}
		members = append(members, j.start("shared", name, tagged("TagS"), handle))
	}
	share := func(first, second int) bool {
		round.Add(1)
		seen[0].clear()
		seen[1].clear()
		j.toAll(queues, fmt.Sprint("round", round.Load(), "."), "TagS")
		eventually(func() bool { return seen[0].count()+seen[1].count() >= len(queues) })
		return seen[0].count() == first && seen[1].count() == second
	}
	divided := eventually(func() bool { return share(2, 2) })
	fmt.Println("shared", divided, seen[0].sorted(), seen[1].sorted())
	must(members[0].Shutdown())
	fmt.Println("left", eventually(func() bool { return share(0, 4) }))
	must(members[1].Shutdown())
}

// ordered: each queue comes in its order, also where a message fails at first.
func (j judge) ordered() {
	var mutex sync.Mutex
	seen, total, failed := map[int][]string{}, 0, false
	handle := func(_ context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		mutex.Lock()
		defer mutex.Unlock()
		text := string(m.Body)
		if text == "m7" && !failed {
			failed = true
			return consumer.SuspendCurrentQueueAMoment
		}
		seen[m.Queue.QueueId] = append(seen[m.Queue.QueueId], text)
		total++
		return consumer.ConsumeSuccess
	}
	made := j.start("ordered", "one", tagged("TagA || TagB"), handle, consumer.WithConsumerOrder(true))
	came := eventually(func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return total >= count
	})
	must(made.Shutdown())
	fmt.Println("ordered", came, failed)
	for number := 0; number < 4; number++ {
		fmt.Println(number, seen[number])
	}
}

// later: what fails comes again, and after the second time no more.
func (j judge) later() {
	found := newTexts()
	handle := func(ctx context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		text := string(m.Body)
		if text == "m4" || text == "m6" && m.ReconsumeTimes == 0 {
			found.add(fmt.Sprint(text, " failed, times ", m.ReconsumeTimes, " topic ", m.Topic))
			if how, ok := primitive.GetConcurrentlyCtx(ctx); ok {
				how.DelayLevelWhenNextConsume = 1
			}
			return consumer.ConsumeRetryLater
		}
		if m.ReconsumeTimes > 0 {
			found.add(fmt.Sprint(text, " done, times ", m.ReconsumeTimes, " topic ", m.Topic))
		}
		return consumer.ConsumeSuccess
	}
	made := j.start("later", "one", tagged("TagA"), handle, consumer.WithMaxReconsumeTimes(2))
	came := eventually(func() bool { return found.count() >= 5 })
	time.Sleep(1500 * time.Millisecond)
	fmt.Println("later", came, found.sorted())
	must(made.Shutdown())
}

func (j judge) pulling(group string, expression string) rocketmq.PullConsumer {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer([]string{j.address}),
		consumer.WithGroupName(group+"-"+j.topic),
		consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithPullBatchSize(32),
		consumer.WithMaxReconsumeTimes(2),
	)
	must(err)
	must(made.Subscribe(j.topic, tagged(expression)))
	must(made.Start())
	return made
}

func (j judge) pull(queues []*primitive.MessageQueue) {
	made := j.pulling("pull", "TagA || TagB")
	queue := queues[1]
	result, err := made.PullFrom(background, queue, 0, 3)
	must(err)
	fmt.Println("pulled", result.Status, result.NextBeginOffset, result.MinOffset)
	for _, m := range result.GetMessageExts() {
		fmt.Println(string(m.Body), "at", m.QueueOffset, "keys", m.GetKeys(), "number", m.GetProperty("number"))
	}
	behind, err := made.PullFrom(background, queue, result.MaxOffset+5, 3)
	must(err)
	fmt.Println("behind the end", behind.Status, behind.NextBeginOffset == result.MaxOffset)
	must(made.Shutdown())
}

// poll hands out what the client has pulled by itself, and takes it back as consumed.
func (j judge) poll() {
	made := j.pulling("poll", "TagA")
	var seen []string
	all := eventually(func() bool {
		request, err := made.Poll(background, time.Second)
		if err != nil {
			return false
		}
		for _, m := range request.GetMsgList() {
			seen = append(seen, string(m.Body))
		}
		made.ACK(background, request, consumer.ConsumeSuccess)
		return len(seen) >= count/2
	})
	sort.Strings(seen)
	fmt.Println("polled", all, seen)
	must(made.Shutdown())
}

func (j judge) replies() {
	replier := newSender(j.address, j.topic, "go-replier", producer.NewRoundRobinQueueSelector())
	handle := func(_ context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		reply, err := consumer.CreateReplyMessage(m, nil)
		must(err)
		reply.Body = append([]byte("reply to "), m.Body...)
		_, err = replier.SendSync(background, reply)
		must(err)
		return consumer.ConsumeSuccess
	}
	made := j.start("replies", "one", tagged("TagR"), handle)
	reply, err := j.Request(background, 30*time.Second, message(j.topic, "a question", "TagR"))
	must(err)
	fmt.Println(string(reply.Body))
	must(made.Shutdown())
	must(replier.Shutdown())
}

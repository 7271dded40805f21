// Clients in Go against one name server: `clients produce|consume NAMESRV TOPIC`. What is printed has no times,
// addresses or keys in it, so that two runs that went the same way print the same.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const patience = 60 * time.Second

var background = context.Background()

func main() {
	rlog.SetLogLevel("fatal")
	programs := map[string]func(address, topic string){"produce": produce, "consume": consume}
	programs[os.Args[1]](os.Args[2], os.Args[3])
	fmt.Println("over")
}

// must ends the program where a step that has to work does not.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// eventually tells whether a condition came true within the time that is given to every step.
func eventually(condition func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}

// queuesOf returns the queues of a topic, by their numbers, once the name server knows of it.
func queuesOf(address, topic string) []*primitive.MessageQueue {
	asker, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{address})))
	must(err)
	var queues []*primitive.MessageQueue
	eventually(func() bool {
		queues, err = asker.FetchPublishMessageQueues(background, topic)
		return err == nil
	})
	must(err)
	must(asker.Close())
	sort.Slice(queues, func(i, j int) bool { return queues[i].QueueId < queues[j].QueueId })
	return queues
}

func message(topic, body, tag string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body)).WithTag(tag).WithKeys([]string{body})
}

// texts collects what callbacks of many goroutines see, each text once.
type texts struct {
	mutex sync.Mutex
	found map[string]bool
}

func newTexts() *texts {
	return &texts{found: map[string]bool{}}
}

// add returns whether the text is new.
func (t *texts) add(text string) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	known := t.found[text]
	t.found[text] = true
	return !known
}

func (t *texts) count() int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return len(t.found)
}

func (t *texts) clear() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.found = map[string]bool{}
}

func (t *texts) sorted() []string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	all := make([]string, 0, len(t.found))
	for text := range t.found {
		all = append(all, text)
	}
	sort.Strings(all)
	return all
}

// Checks the operations of drills for linearizability with Porcupine.
//
//	go run . [-timeout 60s] operations.jsonl
//
// Prints one line of JSON and ends with 0 where every object has a linearization, 1 where one has none, 2 where it was not
// decided in time or the file is none of operations.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const namedMax = 4 // operations of one fault

// Verdict is what is printed. Faults are sentences that name operations.
type Verdict struct {
	Operations int      `json:"operations"`
	Lists      int      `json:"lists"`
	Registers  int      `json:"registers"`
	Undecided  []string `json:"undecided"`
	Faults     []string `json:"faults"`
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for each list and register")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	verdict, err := judge(flag.Arg(0), *timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	said, _ := json.Marshal(verdict)
	fmt.Println(string(said))
	switch {
	case len(verdict.Faults) > 0:
		os.Exit(1)
	case len(verdict.Undecided) > 0:
		os.Exit(2)
	}
}

func judge(path string, timeout time.Duration) (*Verdict, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, objects, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	verdict := &Verdict{Undecided: []string{}, Faults: []string{}}
	for _, object := range objects {
		here, model := lines[object], registers
		verdict.Operations += len(here)
		if here[0].isList() {
			verdict.Lists++
			here, model = settled(here), lists
		} else {
			verdict.Registers++
		}
		history := operations(here)
		switch porcupine.CheckOperationsTimeout(model, history, timeout) {
		case porcupine.Illegal:
			verdict.Faults = append(verdict.Faults, object+": "+fault(model, history, timeout))
		case porcupine.Unknown:
			verdict.Undecided = append(verdict.Undecided, fmt.Sprintf("%s: %d operations", object, len(history)))
		}
	}
	return verdict, nil
}

func operations(lines []Line) []porcupine.Operation {
	history := make([]porcupine.Operation, len(lines))
	for number, line := range lines {
		end := int64(forever)
		if line.Return != nil {
			end = *line.Return
		}
		history[number] = porcupine.Operation{
			ClientId: line.ClientId, Input: line.Input, Call: line.Call, Output: line.Output, Return: end,
			Metadata: named{number, line.Metadata},
		}
	}
	return history
}

// named is an operation's place in its history, and whose it was.
type named struct {
	number int
	who    string
}

// fault names the operations that stop the longest linearization: each has begun before any that is left has returned,
// so one of them has to be next, and none can be.
func fault(model porcupine.Model, history []porcupine.Operation, timeout time.Duration) string {
	_, info := porcupine.CheckOperationsVerbose(model, history, timeout)
	var longest []porcupine.Operation
	for _, found := range info.PartialLinearizationsOperations()[0] {
		if len(found) > len(longest) {
			longest = found
		}
	}
	state, done := model.Init(), map[int]bool{}
	for _, each := range longest {
		_, state = model.Step(state, each.Input, each.Output)
		done[each.Metadata.(named).number] = true
	}
	first := int64(forever)
	for number, each := range history {
		if !done[number] && each.Return < first {
			first = each.Return
		}
	}
	var stuck, waiting []string
	values := map[string]bool{"": true}
	for number, each := range history {
		if done[number] || each.Call > first {
			continue
		}
		said := described(each) + ": "
		if found := whyNext(state, each); found == nil {
			said += "it leads nowhere"
		} else {
			said += found.problem
			for _, value := range found.values {
				if !values[value] {
					said += "; " + origin(value, history)
				}
				values[value] = true
			}
		}
		if each.Return == first {
			stuck = append(stuck, said)
		} else {
			waiting = append(waiting, said)
		}
	}
	stuck = append(stuck, waiting...)
	more := ""
	if len(stuck) > namedMax {
		more = fmt.Sprintf("; and %d more", len(stuck)-namedMax)
		stuck = stuck[:namedMax]
	}
	return fmt.Sprintf("no order explains it behind %d of %d operations: %s%s",
		len(longest), len(history), strings.Join(stuck, "; "), more)
}

func whyNext(state interface{}, operation porcupine.Operation) *doubt {
	input, output := operation.Input.(Input), operation.Output.(*Output)
	if found, ok := state.(*list); ok {
		return found.why(input, output)
	}
	return whyNot(state.(string), input, output)
}

// origin names the operations that brought a value.
func origin(value string, history []porcupine.Operation) string {
	var found []string
	for _, each := range history {
		if each.Input.(Input).Value == value {
			found = append(found, described(each))
		}
	}
	if len(found) == 0 {
		return value + " was brought by nobody"
	}
	return strings.Join(found, "; ")
}

func described(operation porcupine.Operation) string {
	input, output := operation.Input.(Input), operation.Output.(*Output)
	what := input.F + " " + input.Value
	switch {
	case input.F == "read" && strings.HasPrefix(input.Object, "list "):
		what = fmt.Sprintf("read of %d from %d", len(output.Values), output.From)
	case input.F == "read":
		what = "read of " + shown(output.Value)
	case input.F == "append":
		what += fmt.Sprintf(" at %d", output.At)
	}
	return fmt.Sprintf("%s by %s, called at %.6f s", what, operation.Metadata.(named).who, float64(operation.Call)/1e6)
}

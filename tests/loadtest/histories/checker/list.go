package main

import (
	"fmt"
	"hash/fnv"

	"github.com/anishathalye/porcupine"
)

// list is the state of a queue: its last value, and the list before it. nil is the empty list.
type list struct {
	before *list
	value  string
	length int
	hash   uint64
}

func (state *list) size() int {
	if state == nil {
		return 0
	}
	return state.length
}

func (state *list) with(value string) *list {
	sum := fnv.New64a()
	if state != nil {
		fmt.Fprintf(sum, "%x ", state.hash)
	}
	sum.Write([]byte(value))
	return &list{state, value, state.size() + 1, sum.Sum64()}
}

// slice returns the values of [from, to).
func (state *list) slice(from, to int) []string {
	values := make([]string, to-from)
	for each := state; each.size() > from; each = each.before {
		if at := each.length - 1; at < to {
			values[at-from] = each.value
		}
	}
	return values
}

func same(one, other *list) bool {
	for one != other {
		if one.size() != other.size() || one.hash != other.hash || one.value != other.value {
			return false
		}
		one, other = one.before, other.before
	}
	return true
}

// doubt is what keeps an operation from taking place in a state, and the values that this is about.
type doubt struct {
	problem string
	values  []string
}

// why is nil where the operation may take place in this state.
func (state *list) why(input Input, output *Output) *doubt {
	size := state.size()
	if input.F == "append" {
		if output.At != size {
			return &doubt{fmt.Sprintf("it got offset %d where the list has %d values", output.At, size), nil}
		}
		return nil
	}
	end, known := output.From+len(output.Values), size
	if end < known {
		known = end
	}
	if output.From < known {
		for place, value := range state.slice(output.From, known) {
			if read := output.Values[place]; read != value {
				problem := fmt.Sprintf("at %d it has %s where %s stands", output.From+place, shown(read), value)
				return &doubt{problem, []string{read, value}}
			}
		}
	}
	if end > size {
		place := size
		if place < output.From {
			place = output.From
		}
		value := output.Values[place-output.From]
		return &doubt{fmt.Sprintf("at %d it has %s where the list ends at %d", place, shown(value), size), []string{value}}
	}
	if output.Whole && end < size {
		value := state.slice(end, end+1)[0]
		return &doubt{fmt.Sprintf("it ends at %d where %s stands", end, value), []string{value}}
	}
	return nil
}

func shown(value string) string {
	if value == "" {
		return "nothing"
	}
	return value
}

var lists = porcupine.Model{
	Init: func() interface{} { return (*list)(nil) },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		before, asked := state.(*list), input.(Input)
		if before.why(asked, output.(*Output)) != nil {
			return false, state
		}
		if asked.F == "append" {
			return true, before.with(asked.Value)
		}
		return true, state
	},
	Equal: func(one, other interface{}) bool { return same(one.(*list), other.(*list)) },
	Hash: func(state interface{}) uint64 {
		if found := state.(*list); found != nil {
			return found.hash
		}
		return 0
	},
}

// settled gives appends the outcomes that reads show. One without an outcome took place where its value was read, or its
// having taken place is seen by nobody and it is left out. One that was sent several times may have taken place as often,
// unless its producer is idempotent: a further copy that was read is an append of its own, at any time from the first
// attempt on. What was read and cannot be explained so stays without an append, and the history is refused.
func settled(lines []Line) []Line {
	places := map[string][]int{}
	seen := map[string]map[int]bool{}
	for _, line := range lines {
		if line.Input.F != "read" {
			continue
		}
		for place, value := range line.Output.Values {
			at := line.Output.From + place
			if value == "" || seen[value][at] {
				continue
			}
			if seen[value] == nil {
				seen[value] = map[int]bool{}
			}
			seen[value][at] = true
			places[value] = append(places[value], at)
		}
	}
	var result []Line
	for _, line := range lines {
		if line.Input.F != "append" {
			result = append(result, line)
			continue
		}
		left := line.Input.Copies
		if line.Output != nil {
			result = append(result, line)
			left--
		}
		for _, at := range places[line.Input.Value] {
			if left <= 0 {
				break
			}
			if line.Output != nil && line.Output.At == at {
				continue
			}
			copied := line
			copied.Output, copied.Return = &Output{At: at}, nil
			result = append(result, copied)
			left--
		}
	}
	return result
}

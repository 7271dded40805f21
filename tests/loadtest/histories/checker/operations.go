package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"
)

// Input is what a client asked for. Object is "list TOPIC/QUEUE" or "register TOPIC/QUEUE".
type Input struct {
	Object string
	F      string // append, read, write
	Value  string
	Copies int // how often an append may be there: as often as it was sent, or once where its producer is idempotent
}

// Output is what the client was told. At is of an append; From, Values, Whole are of a list's read; Value of a register's.
type Output struct {
	At     int
	From   int
	Values []string
	Whole  bool // nothing stands behind Values
	Value  string
}

// Line is an operation as a drill writes it. Without Return nobody knows what became of it.
type Line struct {
	ClientId int
	Input    Input
	Call     int64
	Output   *Output
	Return   *int64
	Metadata string
}

func (line Line) isList() bool { return strings.HasPrefix(line.Input.Object, "list ") }

// forever is the return of what may still take place.
const forever = math.MaxInt64

// read returns the lines by object, in the order of the file, and the objects in order of their names.
func read(from io.Reader) (map[string][]Line, []string, error) {
	found := map[string][]Line{}
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<30)
	for number := 1; scanner.Scan(); number++ {
		var line Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return nil, nil, fmt.Errorf("line %d is no operation: %w", number, err)
		}
		if problem := line.problem(); problem != "" {
			return nil, nil, fmt.Errorf("line %d: %s", number, problem)
		}
		found[line.Input.Object] = append(found[line.Input.Object], line)
	}
	objects := make([]string, 0, len(found))
	for object := range found {
		objects = append(objects, object)
	}
	sort.Strings(objects)
	return found, objects, scanner.Err()
}

func (line Line) problem() string {
	kind, _, _ := strings.Cut(line.Input.Object, " ")
	switch kind + " " + line.Input.F {
	case "list append", "list read", "register write", "register read":
	default:
		return fmt.Sprintf("%q of %q is no operation that has a model", line.Input.F, line.Input.Object)
	}
	if (line.Output == nil) != (line.Return == nil) {
		return "it has one of Output and Return"
	}
	if line.Input.F == "read" && line.Output == nil {
		return "a read without an outcome says nothing"
	}
	return ""
}

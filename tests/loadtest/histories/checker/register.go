package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

func whyNot(state string, input Input, output *Output) *doubt {
	if input.F == "read" && output.Value != state {
		problem := fmt.Sprintf("it has %s where the register holds %s", shown(output.Value), shown(state))
		return &doubt{problem, []string{output.Value, state}}
	}
	return nil
}

var registers = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		asked := input.(Input)
		if asked.F == "write" {
			return true, asked.Value
		}
		return whyNot(state.(string), asked, output.(*Output)) == nil, state
	},
}

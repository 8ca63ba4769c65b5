// Judges a recorded history of a key-value service: is there an order of its operations, within their times, that a
// map would have answered the same way? The checker is porcupine; this file says what a map does.
//
// Reads JSON lines from standard input: {"client":0,"key":"k","op":"create","value":"v","result":"ok","call":1,"return":2}.
// A result is ok, exists, missing, conflict or unknown; an unknown one may have happened at any time after its call, or never.
// Ends with 0 when the history is linearizable, with 1 when it is not, and with 2 when it cannot be read.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Client   int    `json:"client"`
	Key      string `json:"key"`
	Op       string `json:"op"`
	Value    string `json:"value"`
	Expected uint64 `json:"expected"` // Version that an update insists on; 0 for any.
	Version  uint64 `json:"version"`  // Version that was answered; 0 for none.
	Result   string `json:"result"`
	Call     int64  `json:"call"`
	Return   int64  `json:"return"`
}

// entry is what a key has: nothing, or a value and a version; version 0 is one that no client was told.
type entry struct {
	present bool
	value   string
	version uint64
}

// step says whether an entry may answer an operation so, and what becomes of it.
func step(is entry, op operation) (bool, entry) {
	unknown := op.Result == "unknown"
	put := entry{present: true, value: op.Value, version: op.Version}
	conflicts := op.Expected != 0 && is.version != 0 && is.version != op.Expected
	switch op.Op {
	case "create":
		if unknown {
			if is.present {
				return true, is
			}
			return true, put
		}
		if is.present {
			return op.Result == "exists", is
		}
		return op.Result == "ok", put
	case "update":
		if unknown {
			if !is.present || conflicts {
				return true, is
			}
			return true, put
		}
		if !is.present {
			return op.Result == "missing", is
		}
		if op.Result == "conflict" {
			return op.Expected != 0 && is.version != op.Expected, is
		}
		return op.Result == "ok" && !conflicts, put
	case "retrieve":
		if unknown {
			return true, is
		}
		if !is.present {
			return op.Result == "missing", is
		}
		same := is.version == 0 || is.version == op.Version
		return op.Result == "ok" && is.value == op.Value && same, is
	case "delete":
		return unknown || op.Result == "ok", entry{}
	}
	return false, is
}

var model = porcupine.Model{
	// Keys do not concern each other, so each has a history of its own.
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(operation).Key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return entry{} },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		return step(state.(entry), input.(operation))
	},
}

func main() {
	var history []porcupine.Operation
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fmt.Fprintln(os.Stderr, "no operation:", err)
			os.Exit(2)
		}
		if op.Result == "unknown" {
			op.Return = math.MaxInt64
		}
		history = append(history, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: op.Return})
	}
	result := porcupine.CheckOperationsTimeout(model, history, time.Minute)
	fmt.Println(len(history), "operations:", result)
	if result != porcupine.Ok {
		os.Exit(1)
	}
}

package main

import (
	"encoding/json"

	"github.com/anishathalye/porcupine"
)

// keyOperation is {"client":0,"key":"k","op":"create","value":"v","result":"ok","call":1,"return":2}. A result is ok,
// exists, missing, conflict or unknown.
type keyOperation struct {
	Key      string `json:"key"`
	Op       string `json:"op"`
	Value    string `json:"value"`
	Expected uint64 `json:"expected"` // Version that an update insists on; 0 for any.
	Version  uint64 `json:"version"`  // Version that was answered; 0 for none.
	Result   string `json:"result"`
}

// entry is what a key has: nothing, or a value and a version; version 0 is one that no client was told.
type entry struct {
	present bool
	value   string
	version uint64
}

// step says whether an entry may answer an operation so, and what becomes of it.
func step(is entry, op keyOperation) (bool, entry) {
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

var keys = porcupine.Model{
	// Keys do not concern each other, so each has a history of its own.
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		return partition(history, func(op porcupine.Operation) string { return op.Input.(keyOperation).Key })
	},
	Init: func() interface{} { return entry{} },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		return step(state.(entry), input.(keyOperation))
	},
}

func readKey(line []byte) (interface{}, error) {
	var op keyOperation
	err := json.Unmarshal(line, &op)
	return op, err
}

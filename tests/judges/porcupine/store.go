package main

import (
	"encoding/json"

	"github.com/anishathalye/porcupine"
)

// storeOperation is {"client":0,"book":1,"op":"buy","quantity":2,"left":7,"result":"bought","call":1,"return":2}. What
// a buy answers is bought, sold out or too few, and how many copies are left; a restock says how many there were before.
// The first line of a book is {"book":1,"op":"stock","left":9}: what it had at first.
type storeOperation struct {
	Book     int    `json:"book"`
	Op       string `json:"op"`
	Quantity int    `json:"quantity"`
	Before   int    `json:"before"`
	Left     int    `json:"left"`
	Result   string `json:"result"`
}

// sell says whether a book that has so many copies may answer an operation so, and how many it has then.
func sell(copies int, op storeOperation) (bool, int) {
	switch op.Op {
	case "stock":
		return true, op.Left
	case "restock":
		return copies == op.Before, op.Left
	case "buy":
		switch {
		case copies >= op.Quantity:
			return op.Result == "bought" && op.Left == copies-op.Quantity, op.Left
		case copies == 0:
			return op.Result == "sold out" && op.Left == 0, copies
		default:
			return op.Result == "too few" && op.Left == copies, copies
		}
	}
	return false, copies
}

var store = porcupine.Model{
	// Books do not concern each other.
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		return partition(history, func(op porcupine.Operation) int { return op.Input.(storeOperation).Book })
	},
	Init: func() interface{} { return 0 },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		return sell(state.(int), input.(storeOperation))
	},
}

func readSale(line []byte) (interface{}, error) {
	var op storeOperation
	err := json.Unmarshal(line, &op)
	return op, err
}

// Judges a recorded history of a service: is there an order of its operations, within their times, in which one simple
// store would have answered the same way? The checker is porcupine; keys.go says what a map does, and store.go what a
// bookstore does.
//
// Takes the store's name as its argument and JSON lines on standard input, one for each operation. One whose result is
// unknown may have happened at any time after its call, or never. Ends with 0 when there is such an order, with 1 when
// there is none, and with 2 when the history cannot be read.
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

type service struct {
	model porcupine.Model
	read  func(line []byte) (interface{}, error)
}

var services = map[string]service{"keys": {keys, readKey}, "store": {store, readSale}}

// times are what lines of all services have.
type times struct {
	Client int    `json:"client"`
	Result string `json:"result"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
}

func partition[K comparable](history []porcupine.Operation, key func(porcupine.Operation) K) [][]porcupine.Operation {
	byKey := map[K][]porcupine.Operation{}
	for _, op := range history {
		byKey[key(op)] = append(byKey[key(op)], op)
	}
	var parts [][]porcupine.Operation
	for _, part := range byKey {
		parts = append(parts, part)
	}
	return parts
}

func refuse(why ...interface{}) {
	fmt.Fprintln(os.Stderr, why...)
	os.Exit(2)
}

func main() {
	if len(os.Args) != 2 || services[os.Args[1]].read == nil {
		refuse("the argument must be keys or store")
	}
	judged := services[os.Args[1]]
	var history []porcupine.Operation
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		op, err := judged.read(lines.Bytes())
		var at times
		if err == nil {
			err = json.Unmarshal(lines.Bytes(), &at)
		}
		if err != nil {
			refuse("no operation:", err)
		}
		if at.Result == "unknown" {
			at.Return = math.MaxInt64
		}
		history = append(history, porcupine.Operation{ClientId: at.Client, Input: op, Call: at.Call, Return: at.Return})
	}
	result := porcupine.CheckOperationsTimeout(judged.model, history, 5*time.Minute)
	fmt.Println(len(history), "operations:", result)
	if result != porcupine.Ok {
		os.Exit(1)
	}
}

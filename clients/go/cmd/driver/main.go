// Driver makes the library's calls for the suite that judges the clients: a request of one line of JSON at a time from standard
// input, a line of JSON for each answer, in any order.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/metadata"

	"quire.example/quire"
	"quire.example/quire/internal/connect"
)

const inFlightMax = 64

type fields = map[string]any

type request struct {
	N               any
	Call            string
	TimeoutMS       int64 `json:"timeout_ms"`
	Traceparent     string
	Tracestate      string
	Cause           bool
	Topic           string
	PageSize        int32 `json:"page_size"`
	Near            string
	ID              int32
	Quantity        *int32
	Seconds         *int32
	Number          int64
	Key             *string
	Value           []byte
	TTL             int64   `json:"ttl_ms"`
	ExpectedVersion *uint64 `json:"expected_version"`
	Prefix          []byte
	KeysOnly        bool `json:"keys_only"`
	Events          int
	Amount          int32
	Cents           quire.Cents
	Limit           int
	After           *int64
	Entries         int
}

func main() {
	settings, measure := connect.Settings{Retries: 3}, bench{}
	flags := pflag.NewFlagSet("driver", pflag.ContinueOnError)
	settings.Add(flags)
	flags.StringVar(&measure.call, "call", "lookup", "`lookup` or buy, of driver bench")
	flags.IntVar(&measure.inFlight, "in-flight", 1, "calls at once")
	flags.Float64Var(&measure.seconds, "seconds", 5, "how long")
	flags.BoolVar(&measure.isBare, "bare", false, "the generated stub alone")
	fatal(flags.Parse(os.Args[1:]))
	words := flags.Args()
	isBench := len(words) == 2 && words[0] == "bench"
	if len(words) != 1 && !isBench {
		fatal(errors.New("name the address: driver [bench] ADDRESS[,ADDRESS…] [FLAGS]"))
	}
	client, err := settings.Client(words[len(words)-1])
	fatal(err)
	if isBench {
		fatal(measure.run(client, words[1]))
		return
	}
	fatal((&driver{client: client, token: settings.Token}).serve(os.Stdin))
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(2)
	}
}

type driver struct {
	client *quire.Client
	token  string
	output sync.Mutex
}

func (d *driver) serve(input io.Reader) error {
	places := make(chan struct{}, inFlightMax)
	var running sync.WaitGroup
	defer running.Wait()
	for requests := json.NewDecoder(input); ; {
		asked := new(request)
		if err := requests.Decode(asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		places <- struct{}{}
		running.Go(func() {
			d.answer(asked)
			<-places
		})
	}
}

func (d *driver) write(n any, answer fields) {
	answer["n"] = n
	d.output.Lock()
	defer d.output.Unlock()
	// Without a reader there is no one to tell.
	_ = json.NewEncoder(os.Stdout).Encode(answer)
}

func (d *driver) answer(asked *request) {
	ctx := context.Background()
	if asked.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(asked.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	if asked.Traceparent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", asked.Traceparent)
	}
	if asked.Tracestate != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "tracestate", asked.Tracestate)
	}
	answer, err := d.call(ctx, asked)
	if fault, ok := errors.AsType[*quire.Error](err); ok {
		kinds := map[error]string{
			quire.ErrRefused: "refused", quire.ErrUnreachable: "unreachable", quire.ErrOutcomeUnknown: "outcome_unknown",
		}
		answer = fields{"error": kinds[fault.Kind], "code": quire.CodeName(fault.Code), "message": fault.Message}
		if asked.Cause {
			answer["cause"] = root(err).Error()
		}
	} else if err != nil {
		answer = fields{"error": "argument", "message": err.Error()}
	}
	d.write(asked.N, answer)
}

// The last error of a chain.
func root(err error) error {
	switch wrapped := err.(type) {
	case interface{ Unwrap() []error }:
		inner := wrapped.Unwrap()
		return root(inner[len(inner)-1])
	case interface{ Unwrap() error }:
		if inner := wrapped.Unwrap(); inner != nil {
			return root(inner)
		}
	}
	return err
}

func (d *driver) call(ctx context.Context, asked *request) (fields, error) {
	client := d.client
	switch asked.Call {
	case "ping":
		return as[string]("message")(client.Ping(ctx))
	case "search":
		books := client.Search(ctx, asked.Topic, asked.PageSize)
		return collect("ids", books, 0, func(b quire.Book) any { return b.ID })
	case "topics":
		return collect("names", client.Topics(ctx, asked.Near), 0, func(t quire.Topic) any { return t.Name })
	case "lookup":
		found, err := client.Lookup(ctx, asked.ID)
		return fields{"book": found.Book}, err
	case "receipt":
		receipt, ok, err := client.Receipt(ctx, asked.Number, text(asked.Key))
		if !ok {
			return fields{"receipt": nil, "log_key": nil}, err
		}
		return fields{"receipt": receipt.Text, "log_key": receipt.LogKey}, err
	case "reserve":
		return reserved(client.Reserve(ctx, asked.ID, buyOptions(asked)...))
	case "confirm":
		return reserved(client.Confirm(ctx, text(asked.Key)))
	case "release":
		return reserved(client.Release(ctx, text(asked.Key)))
	case "buy":
		purchase, err := client.Buy(ctx, asked.ID, buyOptions(asked)...)
		answer := fields{"outcome": purchase.Outcome, "key": purchase.Key, "replayed": purchase.Replayed}
		if purchase.Outcome == quire.Bought {
			answer["number"] = purchase.Number
		}
		if purchase.StockLeft != nil {
			answer["stock_left"] = *purchase.StockLeft
		}
		return answer, err
	case "scan":
		values := [][]byte{}
		keys, err := collect("keys", client.Scan(ctx, string(asked.Prefix), asked.KeysOnly), 0, func(e quire.Entry) any {
			values = append(values, append([]byte{}, e.Value...))
			return []byte(e.Key)
		})
		if !asked.KeysOnly {
			keys["values"] = values
		}
		return keys, err
	case "watch":
		return d.watch(ctx, asked)
	case "list", "restock", "update_price", "log", "tail_log":
		return d.operate(ctx, asked)
	}
	return d.keep(ctx, asked)
}

func buyOptions(asked *request) []quire.BuyOption {
	options := []quire.BuyOption{}
	if asked.Quantity != nil {
		options = append(options, quire.Quantity(*asked.Quantity))
	}
	if asked.Key != nil {
		options = append(options, quire.Key(*asked.Key))
	}
	if asked.Seconds != nil {
		options = append(options, quire.Seconds(*asked.Seconds))
	}
	return options
}

func reserved(r quire.Reservation, err error) (fields, error) {
	answer := fields{"outcome": r.Outcome, "key": r.Key, "replayed": r.Replayed}
	for name, value := range map[string]int64{"id": int64(r.ID), "quantity": int64(r.Quantity), "number": r.Number} {
		if value != 0 {
			answer[name] = value
		}
	}
	if r.StockLeft != nil {
		answer["stock_left"] = *r.StockLeft
	}
	if !r.Until.IsZero() {
		answer["until_ms"] = r.Until.UnixMilli()
	}
	return answer, err
}

func text(key *string) string {
	if key == nil {
		return ""
	}
	return *key
}

// The calls for one key of the key-value store.
func (d *driver) keep(ctx context.Context, asked *request) (fields, error) {
	bytes, err := base64.StdEncoding.DecodeString(text(asked.Key))
	if err != nil {
		return nil, fmt.Errorf("key is %q; it must be base64", text(asked.Key))
	}
	key, options := string(bytes), []quire.WriteOption{quire.TTL(time.Duration(asked.TTL) * time.Millisecond)}
	if asked.ExpectedVersion != nil {
		options = append(options, quire.ExpectedVersion(*asked.ExpectedVersion))
	}
	var write quire.Write
	switch asked.Call {
	case "create":
		write, err = d.client.Create(ctx, key, asked.Value, options...)
	case "put":
		write, err = d.client.Put(ctx, key, asked.Value, options...)
	case "update":
		write, err = d.client.Update(ctx, key, asked.Value, options...)
	case "delete":
		write, err = d.client.Delete(ctx, key, options...)
		if write.Outcome != quire.AnotherVersion {
			return fields{"deleted": write.Outcome == quire.Written}, err
		}
	case "get":
		entry, ok, err := d.client.Get(ctx, key)
		if !ok {
			return fields{"outcome": quire.NoSuchKey}, err
		}
		answer := fields{"value": append([]byte{}, entry.Value...), "version": entry.Version}
		if entry.ExpiresIn > 0 {
			answer["ttl_ms"] = entry.ExpiresIn.Milliseconds()
		}
		return answer, err
	default:
		return nil, fmt.Errorf("there is no call %q", asked.Call)
	}
	if write.Outcome == quire.Written {
		return fields{"version": write.Version}, err
	}
	return fields{"outcome": write.Outcome}, err
}

func (d *driver) watch(ctx context.Context, asked *request) (fields, error) {
	kinds, keys := []quire.EventKind{}, [][]byte{}
	for event, err := range d.client.Watch(ctx, string(asked.Prefix)) {
		if err != nil {
			return nil, err
		}
		if event.Kind == quire.Started {
			d.write(asked.N, fields{"started": true})
		} else {
			kinds, keys = append(kinds, event.Kind), append(keys, []byte(event.Key))
		}
		if len(kinds) >= asked.Events {
			break
		}
	}
	return fields{"kinds": kinds, "keys": keys}, nil
}

func (d *driver) operate(ctx context.Context, asked *request) (fields, error) {
	operator, err := d.client.Operator(d.token)
	if err != nil {
		return nil, err
	}
	number := func(e quire.LogEntry) any { return e.Number }
	switch asked.Call {
	case "list":
		return collect("ids", operator.List(ctx), 0, func(b quire.Book) any { return b.ID })
	case "restock":
		return as[int64]("raised")(operator.Restock(ctx, asked.Amount))
	case "update_price":
		change, ok, err := operator.UpdatePrice(ctx, asked.ID, asked.Cents)
		if !ok {
			return fields{"before": nil, "after": nil}, err
		}
		return fields{"before": change.Before, "after": change.After}, err
	case "log":
		return collect("numbers", operator.Log(ctx), asked.Limit, number)
	}
	after := int64(-1)
	if asked.After != nil {
		after = *asked.After
	}
	return collect("numbers", operator.TailLog(ctx, after), asked.Entries, number)
}

// An answer of one field.
func as[T any](name string) func(T, error) (fields, error) {
	return func(value T, err error) (fields, error) { return fields{name: value}, err }
}

// An answer with a field of each item; of the first `most` unless that is 0.
func collect[T any](name string, items iter.Seq2[T, error], most int, field func(T) any) (fields, error) {
	found := []any{}
	for item, err := range items {
		if err != nil {
			return fields{}, err
		}
		if found = append(found, field(item)); len(found) == most {
			break
		}
	}
	return fields{name: found}, nil
}

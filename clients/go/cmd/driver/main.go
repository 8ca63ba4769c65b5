// Driver makes the library's calls for the suite that judges the clients: a request of one line of JSON at a time from standard
// input, a line of JSON for each answer, in any order.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"time"

	"quire"
	"quire/internal/connect"
)

const inFlightMax = 64

type fields = map[string]any

type request struct {
	N               any
	Call            string
	TimeoutMS       *int64 `json:"timeout_ms"`
	Topic           string
	PageSize        int32 `json:"page_size"`
	Near            string
	ID              int32
	Quantity        *int32
	Key             *string
	Value           []byte
	TTL             *int64  `json:"ttl_ms"`
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
	run := serve
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		run = bench
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(2)
	}
}

func serve(args []string) error {
	if len(args) == 0 {
		return errors.New("name the address: driver ADDRESS[,ADDRESS…] [FLAGS]")
	}
	flags := flag.NewFlagSet("driver", flag.ExitOnError)
	token := flags.String("token", "", "token to send with every call")
	ca := flags.String("ca", "", "certificates in PEM to trust; makes the client speak TLS")
	certificate := flags.String("certificate", "", "certificate in PEM to show")
	keyFile := flags.String("key-file", "", "private key of the certificate")
	retries := flags.Int("retries", 3, "how often a call is sent again")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	addresses, isTLS, err := connect.Addresses(args[0])
	if err != nil {
		return err
	}
	options := []quire.Option{quire.WithToken(*token), quire.WithRetries(*retries)}
	if isTLS || *ca != "" {
		config, err := connect.TLS(*ca, *certificate, *keyFile)
		if err != nil {
			return err
		}
		options = append(options, quire.WithTLS(config))
	}
	client, err := quire.New(addresses, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	driver := &driver{client: client, token: *token}
	places := make(chan struct{}, inFlightMax)
	var running sync.WaitGroup
	defer running.Wait()
	for requests := json.NewDecoder(os.Stdin); ; {
		asked := new(request)
		if err := requests.Decode(asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		places <- struct{}{}
		running.Go(func() {
			driver.answer(asked)
			<-places
		})
	}
}

type driver struct {
	client *quire.Client
	token  string
	output sync.Mutex
}

func (d *driver) write(n any, answer fields) {
	answer["n"] = n
	line := new(bytes.Buffer)
	encoder := json.NewEncoder(line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		panic(err)
	}
	d.output.Lock()
	defer d.output.Unlock()
	// Without a reader there is no one to tell.
	_, _ = os.Stdout.Write(line.Bytes())
}

func (d *driver) answer(asked *request) {
	ctx := context.Background()
	if asked.TimeoutMS != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*asked.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	answer, err := d.call(ctx, asked)
	if fault, ok := errors.AsType[*quire.Error](err); ok {
		kinds := map[error]string{
			quire.ErrRefused: "refused", quire.ErrUnreachable: "unreachable", quire.ErrOutcomeUnknown: "outcome_unknown",
		}
		answer = fields{"error": kinds[fault.Kind], "code": quire.CodeName(fault.Code), "message": fault.Message}
	} else if err != nil {
		answer = fields{"error": "argument", "message": err.Error()}
	}
	d.write(asked.N, answer)
}

func (d *driver) call(ctx context.Context, asked *request) (fields, error) {
	switch asked.Call {
	case "ping":
		message, err := d.client.Ping(ctx)
		return fields{"message": message}, err
	case "search":
		books := d.client.Search(ctx, asked.Topic, asked.PageSize)
		ids, err := collect(books, 0, func(b quire.Book) int32 { return b.ID })
		return fields{"ids": ids}, err
	case "topics":
		names, err := collect(d.client.Topics(ctx, asked.Near), 0, func(t quire.Topic) string { return t.Name })
		return fields{"names": names}, err
	case "lookup":
		found, err := d.client.Lookup(ctx, asked.ID)
		if found.Book == nil {
			return fields{"book": nil}, err
		}
		return fields{"book": connect.BookJSON(*found.Book)}, err
	case "buy":
		return d.buy(ctx, asked)
	case "list", "restock", "update_price", "log", "tail_log":
		return d.operate(ctx, asked)
	}
	return d.keep(ctx, asked)
}

func (d *driver) buy(ctx context.Context, asked *request) (fields, error) {
	var options []quire.BuyOption
	if asked.Quantity != nil {
		options = append(options, quire.Quantity(*asked.Quantity))
	}
	if asked.Key != nil {
		options = append(options, quire.Key(*asked.Key))
	}
	purchase, err := d.client.Buy(ctx, asked.ID, options...)
	answer := fields{"outcome": purchase.Outcome, "key": purchase.Key, "replayed": purchase.Replayed}
	if purchase.Outcome == quire.Bought {
		answer["number"] = purchase.Number
	}
	if purchase.StockLeft != nil {
		answer["stock_left"] = *purchase.StockLeft
	}
	return answer, err
}

// The key-value store's calls.
func (d *driver) keep(ctx context.Context, asked *request) (fields, error) {
	var key []byte
	if asked.Key != nil {
		var err error
		if key, err = base64.StdEncoding.DecodeString(*asked.Key); err != nil {
			return nil, fmt.Errorf("key is %q; it must be base64", *asked.Key)
		}
	}
	var options []quire.WriteOption
	if asked.TTL != nil {
		options = append(options, quire.TTL(time.Duration(*asked.TTL)*time.Millisecond))
	}
	if asked.ExpectedVersion != nil {
		options = append(options, quire.ExpectedVersion(*asked.ExpectedVersion))
	}
	switch asked.Call {
	case "create":
		return written(d.client.Create(ctx, string(key), asked.Value, options...))
	case "put":
		return written(d.client.Put(ctx, string(key), asked.Value, options...))
	case "update":
		return written(d.client.Update(ctx, string(key), asked.Value, options...))
	case "delete":
		write, err := d.client.Delete(ctx, string(key), options...)
		if write.Outcome == quire.AnotherVersion {
			return fields{"outcome": write.Outcome}, err
		}
		return fields{"deleted": write.Outcome == quire.Written}, err
	case "retrieve":
		entry, ok, err := d.client.Retrieve(ctx, string(key))
		if !ok {
			return fields{"outcome": "no_such_key"}, err
		}
		answer := fields{"value": present(entry.Value), "version": entry.Version}
		if entry.ExpiresIn > 0 {
			answer["ttl_ms"] = entry.ExpiresIn.Milliseconds()
		}
		return answer, nil
	case "scan":
		values := [][]byte{}
		keys, err := collect(d.client.Scan(ctx, string(asked.Prefix), asked.KeysOnly), 0, func(e quire.Entry) []byte {
			values = append(values, present(e.Value))
			return []byte(e.Key)
		})
		if asked.KeysOnly {
			return fields{"keys": keys}, err
		}
		return fields{"keys": keys, "values": values}, err
	case "watch":
		return d.watch(ctx, asked)
	}
	return nil, fmt.Errorf("there is no call %q", asked.Call)
}

func written(write quire.Write, err error) (fields, error) {
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
	number := func(e quire.LogEntry) int64 { return e.Number }
	switch asked.Call {
	case "list":
		ids, err := collect(operator.List(ctx), 0, func(b quire.Book) int32 { return b.ID })
		return fields{"ids": ids}, err
	case "restock":
		raised, err := operator.Restock(ctx, asked.Amount)
		return fields{"raised": raised}, err
	case "update_price":
		change, ok, err := operator.UpdatePrice(ctx, asked.ID, asked.Cents)
		if !ok {
			return fields{"before": nil, "after": nil}, err
		}
		return fields{"before": change.Before, "after": change.After}, err
	case "log":
		numbers, err := collect(operator.Log(ctx), asked.Limit, number)
		return fields{"numbers": numbers}, err
	}
	after := int64(-1)
	if asked.After != nil {
		after = *asked.After
	}
	numbers, err := collect(operator.TailLog(ctx, after), asked.Entries, number)
	return fields{"numbers": numbers}, err
}

// A field of the items; of the first `most` unless that is 0.
func collect[T, F any](items iter.Seq2[T, error], most int, field func(T) F) ([]F, error) {
	found := []F{}
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		if found = append(found, field(item)); len(found) == most {
			break
		}
	}
	return found, nil
}

// An empty value is no null in JSON.
func present(value []byte) []byte { return append([]byte{}, value...) }

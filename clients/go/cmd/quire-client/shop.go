package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"quire.example/quire"
	"quire.example/quire/internal/connect"
)

// The commands, as help shows them.
var commands = [...]struct{ name, arguments, does string }{
	{"ping", "", "tests the connection"},
	{"topics", " [text]", "the topics, or those near a text"},
	{"search", " <topic>", "books of a topic"},
	{"lookup", " <id>", "one book"},
	{"buy", " <id> [quantity]", "buys one copy, or as many as you say"},
	{"help", "", "this list; ? as well"},
	{"exit", "", "leaves; quit as well"},
}

func isCommand(word string) bool {
	for _, command := range commands {
		if command.name == word {
			return true
		}
	}
	return word == "?" || word == "quit"
}

// The store as the commands see it.
type shop struct {
	client  *quire.Client
	flags   connect.Flags
	timeout time.Duration
	address string
	seen    *seen
}

// What came of a command. Its text is ready for a terminal.
type answer struct {
	code    int
	text    string
	json    map[string]any
	isFault bool
}

type command func(context.Context, *shop) answer

// The command that words make; nil if it is to leave. An error says what is wrong with them.
func understood(words []string) (command, error) {
	name, count := words[0], len(words)-1
	rest := strings.Join(words[1:], " ")
	switch {
	case name == "ping" && count == 0:
		return ping, nil
	case name == "topics":
		return func(ctx context.Context, s *shop) answer { return s.topics(ctx, rest) }, nil
	case name == "search" && count > 0:
		return func(ctx context.Context, s *shop) answer { return s.search(ctx, rest) }, nil
	case name == "lookup" && count == 1, name == "buy" && (count == 1 || count == 2):
		id, ok := connect.Whole(words[1])
		if !ok || id < 1 {
			return nil, fmt.Errorf("id is '%s'; it must be a whole number from 1 to 2147483647", words[1])
		}
		if name == "lookup" {
			return func(ctx context.Context, s *shop) answer { return s.lookup(ctx, id) }, nil
		}
		quantity, ok := connect.Whole(append(words, "1")[2])
		if !ok || quantity < 1 {
			return nil, fmt.Errorf("quantity is '%s'; it must be a whole number from 1", words[2])
		}
		return func(ctx context.Context, s *shop) answer { return s.buy(ctx, id, quantity) }, nil
	case (name == "help" || name == "?") && count == 0:
		return func(context.Context, *shop) answer { return answer{text: listed()} }, nil
	case (name == "exit" || name == "quit") && count == 0:
		return nil, nil
	}
	known := map[string]string{"?": "help", "quit": "exit"}
	for _, command := range commands {
		if command.name == name || command.name == known[name] {
			return nil, errors.New("usage: " + command.name + command.arguments)
		}
	}
	return nil, fmt.Errorf("there is no command '%s'; help lists them", name)
}

func listed() string {
	var rows [][]string
	for _, command := range commands {
		rows = append(rows, []string{command.name + command.arguments, command.does})
	}
	return table([]column{{"command", false}, {"does", false}}, rows)
}

func ping(ctx context.Context, s *shop) answer {
	start := time.Now()
	message, err := s.client.Ping(ctx)
	took := time.Since(start)
	if err != nil {
		return s.fault(err)
	}
	return answer{
		text: fmt.Sprintf("%s (%.2f ms)", escaped(message), took.Seconds()*1e3),
		json: map[string]any{"message": message, "microseconds": took.Microseconds(), "success": true},
	}
}

func (s *shop) topics(ctx context.Context, near string) answer {
	rows, found := [][]string{}, []quire.Topic{}
	for topic, err := range s.client.Topics(ctx, near) {
		if err != nil {
			return s.fault(err)
		}
		s.seen.topic(topic.Name)
		rows = append(rows, []string{topic.Name, strconv.FormatInt(topic.Books, 10)})
		found = append(found, topic)
	}
	text := table([]column{{"topic", false}, {"books", true}}, rows)
	if len(rows) == 0 && near == "" {
		text = "there are no topics"
	} else if len(rows) == 0 {
		text = fmt.Sprintf("no topic is near '%s'", escaped(near))
	}
	return answer{text: text, json: map[string]any{"success": true, "topics": found}}
}

func (s *shop) search(ctx context.Context, topic string) answer {
	books := []quire.Book{}
	last := quire.Page{Success: true}
	for page, err := range s.client.SearchPages(ctx, topic, 0) {
		if err != nil {
			return s.fault(err)
		}
		books, last = append(books, page.Books...), page
	}
	s.seen.books(books)
	said := map[string]any{"books": books, "message": last.Message, "success": last.Success}
	text := bookTable(books)
	if len(books) == 0 {
		text = escaped(last.Message)
		var names []string
		for near, err := range s.client.Topics(ctx, topic) {
			// A server that cannot say names none.
			if err != nil || topic == "" {
				break
			}
			names = append(names, near.Name)
		}
		if len(names) > 0 {
			said["near"] = names
			text += "; near it: '" + escaped(strings.Join(names, "', '")) + "'"
		}
	}
	return answer{code: success(last.Success), text: text, json: said}
}

func (s *shop) lookup(ctx context.Context, id int32) answer {
	found, err := s.client.Lookup(ctx, id)
	if err != nil {
		return s.fault(err)
	}
	said := map[string]any{"book": found.Book, "message": found.Message, "success": found.Book != nil}
	if found.Book == nil {
		return answer{code: refused, text: escaped(found.Message), json: said}
	}
	books := []quire.Book{*found.Book}
	s.seen.books(books)
	return answer{text: bookTable(books), json: said}
}

func (s *shop) buy(ctx context.Context, id, quantity int32) answer {
	key := cmp.Or(strings.ToValidUTF8(s.flags["--key"], "\ufffd"), quire.RandomKey())
	purchase, err := s.client.Buy(ctx, id, quire.Quantity(quantity), quire.Key(key))
	if err != nil {
		failed := s.fault(err)
		failed.json["key"] = key
		return failed
	}
	if purchase.Outcome == quire.Unknown {
		return s.unknown(purchase, id, quantity)
	}
	isBought := purchase.Outcome == quire.Bought
	outcome := strings.ToUpper(string(purchase.Outcome))
	text := escaped(purchase.Message)
	if isBought {
		text += fmt.Sprintf(" (purchase %d)", purchase.Number)
		if purchase.Number == 0 {
			// A server of the first contract has neither numbers nor outcomes.
			outcome = "UNSPECIFIED"
		}
	}
	if purchase.Replayed {
		text += "; this key was sent before, nothing was bought again"
	}
	return answer{code: success(isBought), text: text, json: map[string]any{
		"key": key, "message": purchase.Message, "outcome": "BUY_OUTCOME_" + outcome, "purchase_number": purchase.Number,
		"replayed": purchase.Replayed, "stock_left": purchase.StockLeft, "success": isBought,
	}}
}

// The outcome is not known: says how to ask again.
func (s *shop) unknown(purchase quire.Purchase, id, quantity int32) answer {
	words := []string{program, "--key", purchase.Key}
	if s.flags.Has("--json") {
		words = append(words, "--json")
	}
	for _, name := range []string{"--ca", "--certificate", "--key-file"} {
		if s.flags.Has(name) {
			words = append(words, name, s.flags[name])
		}
	}
	words = append(words, s.address, "buy", strconv.Itoa(int(id)))
	if quantity != 1 {
		words = append(words, strconv.Itoa(int(quantity)))
	}
	for at, word := range words {
		words[at] = quoted(word)
	}
	again := strings.Join(words, " ")
	lines := func(key string) string {
		return fmt.Sprintf("it is not known whether book %d was bought: %s\n"+
			"the purchase has the key %s; this asks for its outcome and buys nothing twice:\n    %s",
			id, cause(purchase.Cause.Code), key, again)
	}
	return answer{code: unknown, isFault: true, text: lines(escaped(purchase.Key)), json: map[string]any{
		"command": again, "key": purchase.Key, "message": lines(purchase.Key), "outcome": "UNKNOWN",
		"status": quire.CodeName(purchase.Cause.Code), "success": false,
	}}
}

func (s *shop) fault(err error) answer {
	fault, ok := errors.AsType[*quire.Error](err)
	if !ok {
		// The library found an argument wrong.
		fault = &quire.Error{Kind: quire.ErrRefused, Code: codes.InvalidArgument, Message: err.Error()}
	}
	code, outcome, message := unreachable, "UNREACHABLE", ""
	switch {
	case fault.Kind == quire.ErrRefused:
		code, outcome, message = refused, "REFUSED", fault.Message
	case !fault.Sent:
		message = s.address + " cannot be reached; is a server running there?"
		fault.Code = codes.Unavailable
	default:
		message = s.address + " did not answer: " + cause(fault.Code)
	}
	return answer{code: code, text: escaped(message), isFault: true, json: map[string]any{
		"message": message, "outcome": outcome, "status": quire.CodeName(fault.Code), "success": false,
	}}
}

func cause(code codes.Code) string {
	switch code {
	case codes.DeadlineExceeded:
		return "time is up"
	case codes.Canceled:
		return "interrupted"
	case codes.Unknown:
		return "the server failed"
	}
	return "the connection broke, or the server is not available"
}

func success(ok bool) int {
	if ok {
		return done
	}
	return refused
}

func bookTable(books []quire.Book) string {
	rows := make([][]string, 0, len(books))
	for _, book := range books {
		id, stock := strconv.Itoa(int(book.ID)), strconv.Itoa(int(book.Stock))
		rows = append(rows, []string{id, book.Title, book.Topic, stock, book.Price.String()})
	}
	return table([]column{{"id", true}, {"title", false}, {"topic", false}, {"stock", true}, {"price", true}}, rows)
}

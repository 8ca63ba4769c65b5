// Quire-client buys books of a Quire server, and asks what it has.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"quire.example/quire"
	"quire.example/quire/internal/connect"
)

// Exit codes, from the best to the worst: several commands end with the highest of theirs.
const refused, usage, unreachable, unknown = 1, 2, 3, 4

const about = `Buys books of a Quire server, and asks what it has. ADDRESS is HOST:PORT, a host, :PORT, http://… or https://…, or several
with commas between; 127.0.0.1:10086 if absent. Without a command: a prompt on a terminal, else commands from standard input.

Exit codes: 0 done; 1 refused; 2 usage; 3 unreachable; 4 the outcome is unknown. Several commands end with the highest.`

var outcomes = map[error]string{quire.ErrRefused: "REFUSED", quire.ErrUnreachable: "UNREACHABLE", quire.ErrOutcomeUnknown: "UNKNOWN"}

// An answer as JSON has it.
type fields = map[string]any

// Asks the server what the words say, the first of which is the command. Of an answer with an error only the key counts.
type call func(ctx context.Context, words []string) (said fields, text string, err error)

// The server that the commands ask, and how.
type shop struct {
	connect.Settings
	client  *quire.Client
	address string
	isJSON  bool
	named   []quire.BuyOption
	// The worst exit code so far.
	code                 int
	isTalking, isLeaving bool
}

func main() {
	s := &shop{Settings: connect.Settings{Retries: 3}, address: "127.0.0.1:10086"}
	s.run(os.Args[1:])
	os.Exit(s.code)
}

// Runs a command, if there is one; what is not understood is reported.
func (s *shop) run(words []string) {
	if s.isTalking && len(words) == 0 {
		return
	}
	root := s.commands()
	root.SetArgs(words)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "quire-client:", connect.Plain(err.Error()))
		s.code = max(s.code, usage)
	}
}

func (s *shop) commands() *cobra.Command {
	root := &cobra.Command{
		Use: "quire-client [ADDRESS] COMMAND", Long: about, Version: "0.1.0", Args: cobra.ArbitraryArgs, RunE: s.other,
		SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	flags := root.PersistentFlags()
	s.Add(flags)
	flags.BoolVar(&s.isJSON, "json", s.isJSON, "print each answer as one line of JSON")
	flags.Func("key", "`text` that makes a purchase or a reservation happen once, of 1 to 64 bytes; random if absent", func(key string) error {
		s.named = []quire.BuyOption{quire.Key(key)}
		return nil
	})
	add := func(use, does string, args cobra.PositionalArgs, call call) {
		root.AddCommand(&cobra.Command{Use: use, Short: does, Args: args, RunE: func(c *cobra.Command, words []string) error {
			return s.ask(append([]string{c.Name()}, words...), call)
		}})
	}
	add("ping", "tests the connection", cobra.NoArgs, s.ping)
	add("topics [text]", "the topics, or those near a text", cobra.ArbitraryArgs, s.topics)
	add("search <topic>", "books of a topic", cobra.MinimumNArgs(1), s.search)
	add("lookup <id>", "one book", cobra.ExactArgs(1), s.lookup)
	add("receipt <number> <key>", "the receipt of a purchase that was made with a key", cobra.ExactArgs(2), s.receipt)
	add("buy <id> [quantity]", "buys one copy, or as many as you say", cobra.RangeArgs(1, 2), s.buy)
	add("reserve <id> [quantity] [seconds]", "holds copies, for 900 seconds if you name none", cobra.RangeArgs(1, 3), s.reserve)
	add("confirm <key>", "buys what is held under a key", cobra.ExactArgs(1), s.settle)
	add("release <key>", "gives back what is held under a key", cobra.ExactArgs(1), s.settle)
	leave := func(*cobra.Command, []string) { s.isLeaving = true }
	root.AddCommand(&cobra.Command{Use: "exit", Short: "leaves", Args: cobra.NoArgs, Run: leave})
	return root
}

// Runs words that do not begin with a command: an address and perhaps a command, or none.
func (s *shop) other(root *cobra.Command, words []string) error {
	if len(words) > 1 || len(words) == 1 && (strings.ContainsAny(words[0], ":.") || words[0] == "localhost") {
		s.address, words = words[0], words[1:]
	}
	if len(words) > 0 {
		root.Args = cobra.NoArgs
		root.SetArgs(slices.Insert(words, 1, "--"))
		return root.Execute()
	}
	s.isTalking = true
	if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		return s.prompt()
	}
	for lines := bufio.NewScanner(os.Stdin); !s.isLeaving && lines.Scan(); {
		s.run(strings.Fields(lines.Text()))
	}
	return nil
}

// Runs the lines of a prompt; raw only while a line is typed, so that Ctrl-C interrupts a command.
func (s *shop) prompt() error {
	input := int(os.Stdin.Fd())
	terminal := term.NewTerminal(os.Stdin, "quire client> ")
	for !s.isLeaving {
		before, wrong := term.MakeRaw(input)
		line, err := terminal.ReadLine()
		if term.Restore(input, before); cmp.Or(wrong, err) != nil {
			break
		}
		s.run(strings.Fields(line))
	}
	return nil
}

// Makes a call with the command's time, which Ctrl-C ends, and prints what came of it: a fault's text on standard error.
func (s *shop) ask(words []string, call call) (err error) {
	if s.client == nil {
		if s.client, err = s.Client(s.address); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if s.Timeout > 0 {
		timed, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		ctx = timed
	}
	said, text, err := call(ctx, words)
	s.isLeaving = s.isLeaving || errors.Is(ctx.Err(), context.Canceled)
	out := os.Stdout
	if fault, ok := errors.AsType[*quire.Error](err); ok {
		said, text = s.fault(fault, said["key"], words)
		out = os.Stderr
	} else if err != nil {
		return err
	}
	if said["success"] == false {
		s.code = max(s.code, refused, map[any]int{"UNREACHABLE": unreachable, "UNKNOWN": unknown}[said["outcome"]])
	}
	if s.isJSON {
		return json.NewEncoder(os.Stdout).Encode(said)
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

// Why there is no answer of the store's; if it may have one, with the command that asks for it.
func (s *shop) fault(fault *quire.Error, key any, words []string) (fields, string) {
	said := fields{"message": fault.Message, "outcome": outcomes[fault.Kind], "status": quire.CodeName(fault.Code), "success": false}
	if key != nil {
		said["key"] = key
	}
	if fault.Kind != quire.ErrOutcomeUnknown {
		return said, connect.Plain(fault.Message)
	}
	message := fmt.Sprintf("it is not known whether '%s' was done: %s", strings.Join(words, " "), fault.Message)
	said["message"], said["command"] = message, s.again(key.(string), words)
	return said, fmt.Sprintf("%s\nthis asks, and does nothing twice:\n    %s", connect.Plain(message), connect.Plain(said["command"].(string)))
}

// The command line that sends a command again.
func (s *shop) again(key string, words []string) string {
	line := []string{"quire-client"}
	if words[0] == "buy" || words[0] == "reserve" {
		line = append(line, "--key", key)
	}
	if s.isJSON {
		line = append(line, "--json")
	}
	line = append(append(line, s.Files()...), s.address, words[0])
	if strings.HasPrefix(words[1], "-") {
		line = append(line, "--")
	}
	return connect.Quoted(append(line, words[1:]...))
}

func (s *shop) ping(ctx context.Context, _ []string) (fields, string, error) {
	start := time.Now()
	message, err := s.client.Ping(ctx)
	took := time.Since(start).Microseconds()
	said := fields{"message": message, "microseconds": took, "success": true}
	return said, fmt.Sprintf("%s (%.2f ms)", connect.Plain(message), float64(took)/1e3), err
}

func (s *shop) topics(ctx context.Context, words []string) (fields, string, error) {
	topics, lines, err := listed(s.client.Topics(ctx, strings.Join(words[1:], " ")), func(t quire.Topic) string {
		return fmt.Sprintf("%8d  %s", t.Books, connect.Plain(t.Name))
	})
	return fields{"success": true, "topics": topics}, cmp.Or(strings.Join(lines, "\n"), "there is no such topic"), err
}

func (s *shop) search(ctx context.Context, words []string) (fields, string, error) {
	topic := strings.Join(words[1:], " ")
	books, lines, err := listed(s.client.Search(ctx, topic, 0), line)
	said := fields{"books": books, "message": "", "success": true}
	if err != nil || len(books) > 0 {
		return said, strings.Join(lines, "\n"), err
	}
	text := fmt.Sprintf("no book has the topic '%s'", topic)
	said["message"] = text
	// There are none from a server without the call for topics.
	if _, near, _ := listed(s.client.Topics(ctx, topic), func(t quire.Topic) string { return t.Name }); len(near) > 0 {
		said["near"] = near
		text += "; near it: " + strings.Join(near, ", ")
	}
	return said, connect.Plain(text), nil
}

// The items of a list, and a line for each.
func listed[T any](items iter.Seq2[T, error], line func(T) string) ([]T, []string, error) {
	found, lines := []T{}, []string{}
	for item, err := range items {
		if err != nil {
			return nil, nil, err
		}
		found, lines = append(found, item), append(lines, line(item))
	}
	return found, lines, nil
}

func (s *shop) lookup(ctx context.Context, words []string) (fields, string, error) {
	id, wrong := whole(words[1], 32)
	found, err := s.client.Lookup(ctx, int32(id))
	said, text := fields{"book": found.Book, "message": found.Message, "success": found.Book != nil}, connect.Plain(found.Message)
	if found.Book != nil {
		text = line(*found.Book)
	}
	return said, text, cmp.Or(wrong, err)
}

func (s *shop) receipt(ctx context.Context, words []string) (fields, string, error) {
	number, wrong := whole(words[1], 64)
	found, ok, err := s.client.Receipt(ctx, number, words[2])
	if !ok {
		message := fmt.Sprintf("there is no purchase %d with this key", number)
		return fields{"log_key": nil, "message": message, "receipt": nil, "success": false}, message, cmp.Or(wrong, err)
	}
	lines := strings.Split(strings.TrimSuffix(found.Text, "\n"), "\n")
	for at, line := range lines {
		lines[at] = connect.Plain(line)
	}
	return fields{"log_key": found.LogKey, "message": "", "receipt": found.Text, "success": true}, strings.Join(lines, "\n"), nil
}

func (s *shop) buy(ctx context.Context, words []string) (fields, string, error) {
	id, options, wrong := s.order(words)
	found, err := s.client.Buy(ctx, id, options...)
	if found.Cause != nil {
		err = found.Cause
	}
	reason := strings.Replace(strings.ToUpper(string(found.Outcome)), "NOT_BOUGHT", "UNSPECIFIED", 1)
	return fields{
		"key": found.Key, "message": found.Message, "outcome": "BUY_OUTCOME_" + reason,
		"purchase_number": found.Number, "replayed": found.Replayed, "stock_left": found.StockLeft,
		"success": found.Outcome == quire.Bought,
	}, told(found.Message, found.Outcome, found.Number, found.Replayed), cmp.Or(wrong, err)
}

func (s *shop) reserve(ctx context.Context, words []string) (fields, string, error) {
	id, options, wrong := s.order(words)
	found, err := s.client.Reserve(ctx, id, options...)
	return reserved(found, cmp.Or(wrong, err))
}

// Confirms or releases.
func (s *shop) settle(ctx context.Context, words []string) (fields, string, error) {
	call := s.client.Release
	if words[0] == "confirm" {
		call = s.client.Confirm
	}
	return reserved(call(ctx, words[1]))
}

func reserved(found quire.Reservation, err error) (fields, string, error) {
	if found.Cause != nil {
		err = found.Cause
	}
	text := told(found.Message, found.Outcome, found.Number, found.Replayed && found.Outcome != quire.HoldExpired)
	if found.Outcome == quire.Held {
		text += fmt.Sprintf("\nheld until %s under the key %s", found.Until.UTC().Format(time.DateTime+" UTC"), connect.Plain(found.Key))
	}
	return fields{
		"id": found.ID, "key": found.Key, "message": found.Message, "number": found.Number,
		"outcome": "RESERVATION_OUTCOME_" + strings.ToUpper(string(found.Outcome)), "quantity": found.Quantity,
		"replayed": found.Replayed, "stock_left": found.StockLeft, "success": found.Success,
		// Without a reservation the time is in the year 1.
		"until_ms": max(0, found.Until.UnixMilli()),
	}, text, err
}

func told(message string, outcome quire.Outcome, number int64, isReplayed bool) string {
	text := connect.Plain(message)
	if outcome == quire.Bought && number > 0 {
		text += fmt.Sprintf(" (purchase %d)", number)
	}
	if isReplayed {
		text += "; the answer to an earlier call"
	}
	return text
}

// What is bought or reserved: a book, perhaps the copies and for how many seconds, and the key.
func (s *shop) order(words []string) (int32, []quire.BuyOption, error) {
	id, wrong := whole(words[1], 32)
	options := slices.Clone(s.named)
	for at, word := range words[2:] {
		number, err := whole(word, 32)
		options = append(options, []func(int32) quire.BuyOption{quire.Quantity, quire.Seconds}[at](int32(number)))
		wrong = cmp.Or(wrong, err)
	}
	return int32(id), options, wrong
}

// A whole number from 1; what is none becomes 0, which the library does not send.
func whole(text string, bits int) (int64, error) {
	number, err := strconv.ParseInt(text, 10, bits)
	if err != nil || number < 1 {
		return 0, fmt.Errorf("'%s' is no number of a book, a purchase, copies or seconds; it must be a whole number from 1", text)
	}
	return number, nil
}

func line(b quire.Book) string {
	return fmt.Sprintf("%10d  %9s  %6d left  %s (%s)", b.ID, b.Price, b.Stock, connect.Plain(b.Title), connect.Plain(b.Topic))
}

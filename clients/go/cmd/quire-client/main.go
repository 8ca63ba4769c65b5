// Quire-client buys books of a Quire server, and asks what it has.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"

	"quire.example/quire"
	"quire.example/quire/internal/connect"
)

// Exit codes, from the best to the worst: several commands end with the highest of theirs.
const done, refused, usage, unreachable, unknown = 0, 1, 2, 3, 4

const about = `Buys books of a Quire server, and asks what it has. ADDRESS is HOST:PORT, a host, :PORT, http://… or https://…, or several
with commas between; 127.0.0.1:10086 if absent. Without a command: a prompt on a terminal, else commands from standard input.

Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was done; 4 the outcome of a purchase or a
reservation is unknown. Commands from standard input end with the highest of theirs.`

var (
	codeOf = map[bool]int{true: done, false: refused}
	acting = regexp.MustCompile(`\pC`)
	doubts = map[string]string{
		"buy": "book %s was bought", "reserve": "book %s was reserved", "confirm": "the reservation %s was confirmed",
		"release": "the reservation %s was released",
	}
	plainWord = regexp.MustCompile(`^[A-Za-z0-9@%_\-+=:,./]+$`)
)

// The server that the commands ask, and how.
type shop struct {
	connect.Settings
	client  *quire.Client
	address string
	isJSON  bool
	timeout time.Duration
	key     *string
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
		fmt.Fprintln(os.Stderr, "quire-client:", plain(err.Error()))
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
	flags.Func("timeout", "longest `time` for a command, as 500ms, 5s or 2min", s.setTimeout)
	flags.Func("key", "`text` that makes a purchase or a reservation happen once, of 1 to 64 bytes; random if absent", func(text string) error {
		s.key = &text
		return nil
	})
	add := func(use, does string, args cobra.PositionalArgs, call func(context.Context, []string) error) {
		root.AddCommand(&cobra.Command{Use: use, Short: does, Args: args, RunE: func(_ *cobra.Command, words []string) error {
			return s.ask(words, call)
		}})
	}
	add("ping", "tests the connection", cobra.NoArgs, s.ping)
	add("topics [text]", "the topics, or those near a text", cobra.ArbitraryArgs, s.topics)
	add("search <topic>", "books of a topic", cobra.MinimumNArgs(1), s.search)
	add("lookup <id>", "one book", cobra.ExactArgs(1), s.lookup)
	add("buy <id> [quantity]", "buys one copy, or as many as you say", cobra.RangeArgs(1, 2), s.buy)
	add("receipt <number> <key>", "the receipt of a purchase that was made with a key", cobra.ExactArgs(2), s.receipt)
	add("reserve <id> [quantity] [seconds]", "holds copies, for 900 seconds if you name none", cobra.RangeArgs(1, 3), s.reserve)
	add("confirm <key>", "buys what is held under a key", cobra.ExactArgs(1), s.confirm)
	add("release <key>", "gives back what is held under a key", cobra.ExactArgs(1), s.release)
	root.AddCommand(&cobra.Command{Use: "exit", Short: "leaves", Args: cobra.NoArgs, Run: func(*cobra.Command, []string) {
		s.isLeaving = true
	}})
	return root
}

func (s *shop) setTimeout(text string) (err error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	s.timeout, err = time.ParseDuration(strings.Replace(text, "min", "m", 1))
	if err != nil || s.timeout < time.Millisecond || s.timeout > 24*time.Hour {
		return errors.New("it must be a time from 1ms to 24h, as 500ms, 5s or 2min")
	}
	return nil
}

// Runs words that do not begin with a command: an address and perhaps a command, or none.
func (s *shop) other(root *cobra.Command, words []string) error {
	if len(words) > 1 || len(words) == 1 && (strings.ContainsAny(words[0], ":.") || words[0] == "localhost") {
		s.address, words = words[0], words[1:]
	}
	if len(words) > 0 {
		if found, _, err := root.Find(words); err != nil || found == root {
			return fmt.Errorf("there is no command '%s'; help lists them", words[0])
		}
		root.SetArgs(words)
		return root.Execute()
	}
	s.isTalking = true
	if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		return s.prompt(root)
	}
	for lines := bufio.NewScanner(os.Stdin); !s.isLeaving && lines.Scan(); {
		s.run(strings.Fields(lines.Text()))
	}
	return nil
}

// Runs the lines of a prompt; raw only while a line is typed, so that Ctrl-C interrupts a command.
func (s *shop) prompt(root *cobra.Command) error {
	input := int(os.Stdin.Fd())
	terminal := term.NewTerminal(os.Stdin, "quire client> ")
	terminal.AutoCompleteCallback = func(line string, at int, key rune) (string, int, bool) {
		for _, command := range root.Commands() {
			if key == '\t' && line != "" && strings.HasPrefix(command.Name(), line) {
				return command.Name() + " ", len(command.Name()) + 1, true
			}
		}
		return line, at, key == '\t'
	}
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

// Makes a call with the command's time, which Ctrl-C ends.
func (s *shop) ask(words []string, call func(context.Context, []string) error) (err error) {
	if s.client == nil {
		if s.client, err = s.Client(s.address); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if s.timeout > 0 {
		timed, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		ctx = timed
	}
	err = call(ctx, words)
	s.isLeaving = s.isLeaving || errors.Is(ctx.Err(), context.Canceled)
	return s.failed(err, map[string]any{})
}

func (s *shop) ping(ctx context.Context, _ []string) error {
	start := time.Now()
	message, err := s.client.Ping(ctx)
	if err != nil {
		return err
	}
	took := time.Since(start).Microseconds()
	said := map[string]any{"message": message, "microseconds": took, "success": true}
	return s.show(done, said, fmt.Sprintf("%s (%.2f ms)", plain(message), float64(took)/1e3))
}

func (s *shop) topics(ctx context.Context, words []string) error {
	found, text := []quire.Topic{}, "books\ttopic"
	for topic, err := range s.client.Topics(ctx, strings.Join(words, " ")) {
		if err != nil {
			return err
		}
		found = append(found, topic)
		text += fmt.Sprintf("\n%d\t%s", topic.Books, plain(topic.Name))
	}
	return s.show(done, map[string]any{"success": true, "topics": found}, text)
}

func (s *shop) search(ctx context.Context, words []string) error {
	books, topic, last := []quire.Book{}, strings.Join(words, " "), quire.Page{Success: true}
	for page, err := range s.client.SearchPages(ctx, topic, 0) {
		if err != nil {
			return err
		}
		books, last = append(books, page.Books...), page
	}
	said, text := map[string]any{"books": books, "message": last.Message, "success": last.Success}, table(books)
	if len(books) == 0 {
		var near []string
		for topic, err := range s.client.Topics(ctx, topic) {
			// A server that cannot say names none.
			if err == nil {
				near = append(near, topic.Name)
			}
		}
		text = plain(last.Message)
		if len(near) > 0 {
			said["near"], text = near, plain(last.Message+"; near it: "+strings.Join(near, ", "))
		}
	}
	return s.show(codeOf[last.Success], said, text)
}

func (s *shop) lookup(ctx context.Context, words []string) error {
	id, err := whole(words[0])
	if err != nil {
		return err
	}
	found, err := s.client.Lookup(ctx, id)
	if err != nil {
		return err
	}
	said := map[string]any{"book": found.Book, "message": found.Message, "success": found.Book != nil}
	if found.Book == nil {
		return s.show(refused, said, plain(found.Message))
	}
	return s.show(done, said, table([]quire.Book{*found.Book}))
}

func (s *shop) buy(ctx context.Context, words []string) error {
	id, wrong := whole(words[0])
	quantity, wrongToo := whole(append(words, "1")[1])
	if err := cmp.Or(wrong, wrongToo); err != nil {
		return err
	}
	key := s.name()
	purchase, err := s.client.Buy(ctx, id, quire.Quantity(quantity), quire.Key(key))
	if err != nil {
		return s.failed(err, map[string]any{"key": key})
	}
	if purchase.Outcome == quire.Unknown {
		return s.unknown(key, purchase.Cause, append([]string{"buy"}, words...))
	}
	isBought, text := purchase.Outcome == quire.Bought, fmt.Sprintf("%s (purchase %d)", plain(purchase.Message), purchase.Number)
	if purchase.Replayed {
		text += "; this key was sent before, nothing was bought again"
	}
	return s.show(codeOf[isBought], map[string]any{
		"key": key, "message": purchase.Message, "outcome": "BUY_OUTCOME_" + strings.ToUpper(string(purchase.Outcome)),
		"purchase_number": purchase.Number, "replayed": purchase.Replayed, "stock_left": purchase.StockLeft, "success": isBought,
	}, text)
}

func (s *shop) receipt(ctx context.Context, words []string) error {
	number, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return fmt.Errorf("'%s' is no number of a purchase", words[0])
	}
	found, ok, err := s.client.Receipt(ctx, number, words[1])
	switch {
	case err != nil:
		return err
	case !ok:
		message := fmt.Sprintf("there is no purchase %d with this key", number)
		return s.show(refused, map[string]any{"log_key": nil, "message": message, "receipt": nil, "success": false}, message)
	}
	lines := strings.Split(strings.TrimSuffix(found.Text, "\n"), "\n")
	for at, line := range lines {
		lines[at] = plain(line)
	}
	said := map[string]any{"log_key": found.LogKey, "message": "", "receipt": found.Text, "success": true}
	return s.show(done, said, strings.Join(lines, "\n"))
}

func (s *shop) reserve(ctx context.Context, words []string) error {
	id, wrong := whole(words[0])
	quantity, wrongToo := whole(append(words, "1")[1])
	if err := cmp.Or(wrong, wrongToo); err != nil {
		return err
	}
	key := s.name()
	options := []quire.BuyOption{quire.Quantity(quantity), quire.Key(key)}
	if len(words) > 2 {
		seconds, err := whole(words[2])
		if err != nil {
			return err
		}
		options = append(options, quire.Seconds(seconds))
	}
	found, err := s.client.Reserve(ctx, id, options...)
	return s.reserved(found, err, key, append([]string{"reserve"}, words...))
}

func (s *shop) confirm(ctx context.Context, words []string) error {
	found, err := s.client.Confirm(ctx, words[0])
	return s.reserved(found, err, words[0], []string{"confirm", words[0]})
}

func (s *shop) release(ctx context.Context, words []string) error {
	found, err := s.client.Release(ctx, words[0])
	return s.reserved(found, err, words[0], []string{"release", words[0]})
}

func (s *shop) reserved(found quire.Reservation, err error, key string, words []string) error {
	if err != nil {
		return s.failed(err, map[string]any{"key": key})
	}
	text, untilMS := plain(found.Message), int64(0)
	switch found.Outcome {
	case quire.Unknown:
		return s.unknown(key, found.Cause, words)
	case quire.Bought:
		text += fmt.Sprintf(" (purchase %d)", found.Number)
	}
	if found.Replayed && found.Outcome != quire.HoldExpired {
		text += "; an earlier call did it"
	}
	if found.Outcome == quire.Held {
		text += fmt.Sprintf("\nheld until %s under the key %s", found.Until.UTC().Format("2006-01-02 15:04:05 UTC"), plain(key))
	}
	if !found.Until.IsZero() {
		untilMS = found.Until.UnixMilli()
	}
	return s.show(codeOf[found.Success], map[string]any{
		"id": found.ID, "key": key, "message": found.Message, "number": found.Number,
		"outcome": "RESERVATION_OUTCOME_" + strings.ToUpper(string(found.Outcome)), "quantity": found.Quantity,
		"replayed": found.Replayed, "stock_left": found.StockLeft, "success": found.Success, "until_ms": untilMS,
	}, text)
}

// The key of --key, or a random one.
func (s *shop) name() string {
	if s.key != nil {
		return *s.key
	}
	return quire.RandomKey()
}

// Shows how to ask for the outcome of a command.
func (s *shop) unknown(key string, cause *quire.Error, asked []string) error {
	words := []string{"quire-client"}
	if asked[0] == "buy" || asked[0] == "reserve" {
		words = append(words, "--key", key)
	}
	if s.isJSON {
		words = append(words, "--json")
	}
	for _, flag := range [][]string{{"--ca", s.CA}, {"--certificate", s.Certificate}, {"--key-file", s.KeyFile}} {
		if flag[1] != "" {
			words = append(words, flag...)
		}
	}
	command := ""
	for _, word := range slices.Concat(words, []string{s.address}, asked) {
		command = strings.TrimSpace(command + " " + quoted(word))
	}
	message := fmt.Sprintf("it is not known whether "+doubts[asked[0]]+": %s", plain(asked[1]), cause.Message)
	return s.show(unknown, map[string]any{
		"command": command, "key": key, "message": message, "outcome": "UNKNOWN",
		"status": quire.CodeName(cause.Code), "success": false,
	}, message+"; this asks, and does nothing twice:\n    "+plain(command))
}

// Shows why there is no answer of the store's; gives back an error of another kind.
func (s *shop) failed(err error, said map[string]any) error {
	fault, ok := errors.AsType[*quire.Error](err)
	if !ok {
		return err
	}
	code, outcome := unreachable, "UNREACHABLE"
	if fault.Kind == quire.ErrRefused {
		code, outcome = refused, "REFUSED"
	} else if !fault.Sent {
		fault.Code = codes.Unavailable
	}
	said["message"], said["outcome"], said["status"], said["success"] = fault.Message, outcome, quire.CodeName(fault.Code), false
	return s.show(code, said, plain(fault.Message))
}

// Prints an answer: faults in text on standard error.
func (s *shop) show(code int, said map[string]any, text string) error {
	s.code = max(s.code, code)
	out := os.Stdout
	if _, isFault := said["status"]; s.isJSON {
		line, _ := json.Marshal(said)
		text = string(line)
	} else if isFault {
		out = os.Stderr
	}
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(lines, text)
	return lines.Flush()
}

func table(books []quire.Book) string {
	lines := []string{"id\tprice\tstock\ttitle\ttopic"}
	for _, book := range books {
		lines = append(lines, fmt.Sprintf("%d\t%s\t%d\t%s\t%s", book.ID, book.Price, book.Stock, plain(book.Title), plain(book.Topic)))
	}
	return strings.Join(lines, "\n")
}

// The text of others, without what acts on a terminal.
func plain(text string) string { return acting.ReplaceAllString(text, "\ufffd") }

// A word of a command line for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func whole(text string) (int32, error) {
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil || number < 1 {
		return 0, fmt.Errorf("'%s' is no number of a book or of copies; it must be a whole number from 1", text)
	}
	return int32(number), nil
}

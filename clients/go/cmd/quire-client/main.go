// Quire-client buys books of a Quire server, and asks what it has.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"quire.example/quire/internal/connect"
)

const (
	program = "quire-client"
	version = "0.1.0"
)

//go:embed help.txt
var help string

// Exit codes, from the best to the worst: several commands end with the highest of theirs.
const (
	done = iota
	refused
	usage
	unreachable
	unknown
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", program, escaped(err.Error()))
		code = usage
	}
	os.Exit(code)
}

// The flags that there are, and whether they take a value.
var takesValue = map[string]bool{
	"--json": false, "--help": false, "--version": false, "--timeout": true, "--retries": true, "--key": true,
	"--token": true, "--ca": true, "--certificate": true, "--key-file": true,
}

func run(args []string) (int, error) {
	f, words, err := connect.Parse(args, takesValue)
	switch {
	case err != nil:
		return usage, err
	case f.Has("--help"):
		fmt.Print(help)
		return done, nil
	case f.Has("--version"):
		fmt.Println(program, version)
		return done, nil
	}
	given := "127.0.0.1:" + connect.PortUsual
	if len(words) > 0 && isAddress(words) {
		given, words = words[0], words[1:]
	}
	shop, err := open(f, given)
	if err != nil {
		return usage, err
	}
	defer shop.client.Close()
	if len(words) > 0 {
		code, _, err := shop.line(words)
		return code, err
	}
	if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		return shop.talk(newPrompt(shop.seen)), nil
	}
	return shop.talk(&pipe{bufio.NewReaderSize(os.Stdin, lineBytesMax+1)}), nil
}

// Whether the first word is the address. No command looks like one; a word that could be a host is one if a command follows.
func isAddress(words []string) bool {
	looks := words[0] == "localhost" || strings.ContainsAny(words[0], ":.[")
	return !isCommand(words[0]) && (looks || len(words) > 1 && isCommand(words[1]))
}

// Checks the flags and makes the client; it connects with the first command.
func open(f connect.Flags, given string) (*shop, error) {
	timeout, ok := duration(f["--timeout"])
	if !ok && f.Has("--timeout") {
		return nil, fmt.Errorf("--timeout is '%s'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min", f["--timeout"])
	}
	if bytes := len(f["--key"]); f.Has("--key") && (bytes < 1 || bytes > 64) {
		return nil, fmt.Errorf("the idempotency key has %d bytes; it must have 1 to 64", bytes)
	}
	if !f.Has("--token") {
		f["--token"] = os.Getenv("QUIRE_TOKEN")
	}
	client, _, err := connect.Client(given, f)
	return &shop{client: client, flags: f, timeout: timeout, address: given, seen: newSeen()}, err
}

var timeForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(ms|s|min)?$`)

func duration(text string) (time.Duration, bool) {
	parts := timeForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, false
	}
	// Out of range is infinite.
	number, _ := strconv.ParseFloat(parts[1], 64)
	units := map[string]time.Duration{"": time.Second, "ms": time.Millisecond, "s": time.Second, "min": time.Minute}
	nanos := number * float64(units[parts[2]])
	return time.Duration(nanos), nanos >= 1e6 && nanos <= float64(24*time.Hour)
}

// Where commands come from. A line that cannot be one has a reason; io.EOF is the end.
type lines interface {
	next() (line string, reason error)
}

// Runs the lines of a pipe or a prompt until they end.
func (s *shop) talk(lines lines) (worst int) {
	for {
		line, err := lines.next()
		if err == io.EOF {
			return worst
		}
		var words []string
		if err == nil {
			words, err = split(line)
		}
		if err == nil && len(words) == 0 {
			continue
		}
		code, leaves := usage, false
		if err == nil {
			code, leaves, err = s.line(words)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, escaped(err.Error()))
		}
		if worst = max(worst, code); leaves {
			return worst
		}
	}
}

// Runs a command; `leaves` is true if it is the last one. An error is one of usage.
func (s *shop) line(words []string) (code int, leaves bool, err error) {
	command, err := understood(words)
	if err != nil {
		return usage, false, err
	}
	if command == nil {
		return done, true, nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	timed, cancel := ctx, context.CancelFunc(func() {})
	if s.timeout > 0 {
		timed, cancel = context.WithTimeout(ctx, s.timeout)
	}
	defer cancel()
	answer := command(timed, s)
	switch {
	case s.flags.Has("--json") && answer.json != nil:
		fmt.Println(jsonLine(answer.json))
	case answer.isFault:
		fmt.Fprintln(os.Stderr, answer.text)
	default:
		fmt.Println(answer.text)
	}
	return answer.code, ctx.Err() != nil, nil
}

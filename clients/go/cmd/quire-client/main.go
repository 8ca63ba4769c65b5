// Quire-client buys books of a Quire server, and asks what it has.
package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"quire"
	"quire/internal/connect"
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

func run(args []string) (int, error) {
	f, words, err := parse(args)
	switch {
	case err != nil:
		return usage, err
	case f.has("--help"):
		fmt.Print(help)
		return done, nil
	case f.has("--version"):
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

// The flags that are given, with their values.
type flags map[string]string

func (f flags) has(name string) bool {
	_, ok := f[name]
	return ok
}

// The flags that there are, and whether they take a value.
var takesValue = map[string]bool{
	"--json": false, "--help": false, "--version": false, "--timeout": true, "--retries": true, "--key": true,
	"--token": true, "--ca": true, "--certificate": true, "--key-file": true,
}

// Reads the command line up to its end, or to --help or --version.
func parse(args []string) (f flags, words []string, err error) {
	f = flags{}
	for at := 0; at < len(args) && !f.has("--help") && !f.has("--version"); at++ {
		word := args[at]
		if word == "--" {
			words = append(words, args[at+1:]...)
			break
		}
		if len(word) < 2 || word[0] != '-' || word[1] >= '0' && word[1] <= '9' {
			words = append(words, word)
			continue
		}
		name, value, hasValue := strings.Cut(word, "=")
		takes, ok := takesValue[name]
		switch {
		case !ok:
			return nil, nil, fmt.Errorf("there is no flag '%s'; --help lists them", name)
		case hasValue && !takes:
			return nil, nil, fmt.Errorf("%s takes no value", name)
		case takes && !hasValue:
			if at++; at == len(args) {
				return nil, nil, fmt.Errorf("%s wants a value", name)
			}
			value = args[at]
		}
		f[name] = value
	}
	for at, word := range words {
		words[at] = strings.ToValidUTF8(word, "\ufffd")
	}
	return f, words, nil
}

// Checks the flags and makes the client; it connects with the first command.
func open(f flags, given string) (*shop, error) {
	s := &shop{flags: f, address: given, seen: newSeen()}
	times, ok := whole(cmp.Or(f["--retries"], "3"))
	if !ok || times > 1_000_000 || f.has("--retries") && f["--retries"] == "" {
		return nil, fmt.Errorf("--retries is '%s'; it must be a whole number from 0 to 1000000", f["--retries"])
	}
	if s.timeout, ok = duration(f["--timeout"]); !ok && f.has("--timeout") {
		return nil, fmt.Errorf("--timeout is '%s'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min", f["--timeout"])
	}
	if bytes := len(f["--key"]); f.has("--key") && (bytes < 1 || bytes > 64) {
		return nil, fmt.Errorf("the idempotency key has %d bytes; it must have 1 to 64", bytes)
	}
	token := cmp.Or(f["--token"], os.Getenv("QUIRE_TOKEN"))
	if strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New("--token has characters that no token has")
	}
	if f.has("--certificate") != f.has("--key-file") {
		return nil, errors.New("--certificate and --key-file belong together; give both or neither")
	}
	addresses, isTLS, err := connect.Addresses(given)
	if err != nil {
		return nil, err
	}
	options := []quire.Option{quire.WithToken(token), quire.WithRetries(int(times))}
	if isTLS {
		if !f.has("--ca") {
			return nil, fmt.Errorf("%s speaks TLS: name the certificates to trust with --ca FILE", given)
		}
		config, err := connect.TLS(f["--ca"], f["--certificate"], f["--key-file"])
		if err != nil {
			return nil, err
		}
		options = append(options, quire.WithTLS(config))
	}
	s.client, err = quire.New(addresses, options...)
	return s, err
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

var wholeForm = regexp.MustCompile(`^\+?[0-9]+$`)

// A whole number of at most 32 bits: ASCII digits, a + before them if need be.
func whole(text string) (int32, bool) {
	number, err := strconv.ParseInt(text, 10, 32)
	return int32(number), err == nil && wholeForm.MatchString(text)
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
	case s.flags.has("--json") && answer.json != nil:
		fmt.Println(jsonLine(answer.json))
	case answer.isFault:
		fmt.Fprintln(os.Stderr, answer.text)
	default:
		fmt.Println(answer.text)
	}
	return answer.code, ctx.Err() != nil, nil
}

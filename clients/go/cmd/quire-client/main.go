// Quire-client buys books of a Quire server, and asks what it has.
package main

import (
	"context"
	_ "embed"
	"fmt"
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

// What the command line says.
type flags struct {
	json                            bool
	timeout                         time.Duration
	retries                         int
	key                             *string
	token, ca, certificate, keyFile string
	words                           []string
}

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", program, escaped(err.Error()))
		code = usage
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	f, text, err := parse(args)
	if err != nil {
		return usage, err
	}
	if text != "" {
		fmt.Print(text)
		return done, nil
	}
	given := "127.0.0.1:" + connect.PortUsual
	if len(f.words) > 0 && isAddress(f.words) {
		given, f.words = f.words[0], f.words[1:]
	}
	client, err := open(f, given)
	if err != nil {
		return usage, err
	}
	defer client.Close()
	shop := &shop{client: client, flags: f, address: given, seen: newSeen()}
	if len(f.words) > 0 {
		code, _, err := shop.line(f.words)
		return code, err
	}
	var lines lines = newPipe(os.Stdin)
	if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		lines = newPrompt(shop.seen)
	}
	return shop.talk(lines)
}

// Whether the first word is the address. No command looks like one; a word that could be a host is one if a command follows.
func isAddress(words []string) bool {
	first := words[0]
	if isCommand(first) {
		return false
	}
	return first == "localhost" || strings.ContainsAny(first, ":.[") || len(words) > 1 && isCommand(words[1])
}

func open(f *flags, given string) (*quire.Client, error) {
	addresses, isTLS, err := connect.Addresses(given)
	if err != nil {
		return nil, err
	}
	options := []quire.Option{quire.WithToken(f.token), quire.WithRetries(f.retries)}
	if isTLS {
		if f.ca == "" {
			return nil, fmt.Errorf("%s speaks TLS: name the certificates to trust with --ca FILE", given)
		}
		config, err := connect.TLS(f.ca, f.certificate, f.keyFile)
		if err != nil {
			return nil, err
		}
		options = append(options, quire.WithTLS(config))
	}
	return quire.New(addresses, options...)
}

// Reads the command line; the text is that of --help or --version.
func parse(args []string) (f *flags, text string, err error) {
	f = &flags{retries: 3, token: os.Getenv("QUIRE_TOKEN")}
	var timeout, retries, key *string
	values := map[string]func(string){
		"--timeout":     func(value string) { timeout = &value },
		"--retries":     func(value string) { retries = &value },
		"--key":         func(value string) { key = &value },
		"--token":       func(value string) { f.token = value },
		"--ca":          func(value string) { f.ca = value },
		"--certificate": func(value string) { f.certificate = value },
		"--key-file":    func(value string) { f.keyFile = value },
	}
	switches := map[string]func(){
		"--json":    func() { f.json = true },
		"--help":    func() { text = help },
		"--version": func() { text = program + " " + version + "\n" },
	}
	for at := 0; at < len(args) && text == ""; at++ {
		word := strings.ToValidUTF8(args[at], "\ufffd")
		if word == "--" {
			f.words = append(f.words, args[at+1:]...)
			break
		}
		if len(word) < 2 || word[0] != '-' || word[1] >= '0' && word[1] <= '9' {
			f.words = append(f.words, word)
			continue
		}
		name, value, hasValue := strings.Cut(word, "=")
		if set, ok := switches[name]; ok && hasValue {
			return nil, "", fmt.Errorf("%s takes no value", name)
		} else if ok {
			set()
			continue
		}
		set, ok := values[name]
		if !ok {
			return nil, "", fmt.Errorf("there is no flag '%s'; --help lists them", name)
		}
		if !hasValue {
			if at++; at == len(args) {
				return nil, "", fmt.Errorf("%s wants a value", name)
			}
			value = strings.ToValidUTF8(args[at], "\ufffd")
		}
		set(value)
	}
	if text == "" {
		err = f.check(timeout, retries, key)
	}
	return f, text, err
}

func (f *flags) check(timeout, retries, key *string) error {
	if timeout != nil {
		time, ok := duration(*timeout)
		if !ok {
			return fmt.Errorf("--timeout is '%s'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min", *timeout)
		}
		f.timeout = time
	}
	if retries != nil {
		times, ok := whole(*retries)
		if !ok || times > 1_000_000 {
			return fmt.Errorf("--retries is '%s'; it must be a whole number from 0 to 1000000", *retries)
		}
		f.retries = int(times)
	}
	if f.key = key; key != nil && (len(*key) < 1 || len(*key) > 64) {
		return fmt.Errorf("the idempotency key has %d bytes; it must have 1 to 64", len(*key))
	}
	if strings.ContainsFunc(f.token, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("--token has characters that no token has")
	}
	if (f.certificate == "") != (f.keyFile == "") {
		return fmt.Errorf("--certificate and --key-file belong together; give both or neither")
	}
	return nil
}

var timeForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(ms|s|min)?$`)

func duration(text string) (time.Duration, bool) {
	parts := timeForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, false
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	units := map[string]time.Duration{"": time.Second, "ms": time.Millisecond, "s": time.Second, "min": time.Minute}
	nanos := number * float64(units[parts[2]])
	return time.Duration(nanos), err == nil && nanos >= 1e6 && nanos <= float64(24*time.Hour)
}

var wholeForm = regexp.MustCompile(`^\+?[0-9]+$`)

// A whole number of at most 32 bits: ASCII digits, a + before them if need be.
func whole(text string) (int32, bool) {
	number, err := strconv.ParseInt(text, 10, 32)
	return int32(number), err == nil && wholeForm.MatchString(text)
}

// Runs the lines of a pipe or a prompt until they end.
func (s *shop) talk(lines lines) (worst int, err error) {
	for {
		line, reason, ok := lines.next()
		if !ok {
			return worst, nil
		}
		var words []string
		if reason == nil {
			words, reason = split(line)
		}
		if reason == nil && len(words) == 0 {
			continue
		}
		code, leaves := usage, false
		if reason == nil {
			code, leaves, reason = s.line(words)
		}
		if reason != nil {
			fmt.Fprintln(os.Stderr, escaped(reason.Error()))
			code = usage
		}
		if worst = max(worst, code); leaves {
			return worst, nil
		}
	}
}

// Runs a command; `leaves` is true if it is the last one. An error is one of usage.
func (s *shop) line(words []string) (code int, leaves bool, err error) {
	command, err := understood(words)
	if err != nil {
		return usage, false, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	interrupted := ctx
	if s.flags.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.flags.timeout)
		defer cancel()
	}
	answer := command(ctx, s)
	switch {
	case answer.leaves:
		return done, true, nil
	case s.flags.json && answer.json != nil:
		fmt.Println(jsonLine(answer.json))
	case answer.isFault:
		fmt.Fprintln(os.Stderr, answer.text)
	default:
		fmt.Println(answer.text)
	}
	return answer.code, interrupted.Err() != nil, nil
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"quire"
)

const (
	lineBytesMax    = 65_536
	historyMax      = 1_000
	historyBytesMax = 1_000
	seenMax         = 10_000
	candidatesMax   = 100
	// A character that no one types; the prompt takes it for Ctrl-C, which its editor would take for the end.
	giveUp = 0x1e
)

// Where commands come from. A line that cannot be one has a reason; ok is false at the end.
type lines interface {
	next() (line string, reason error, ok bool)
}

// Lines of a pipe or a file.
type pipe struct{ input *bufio.Reader }

func newPipe(input io.Reader) *pipe { return &pipe{bufio.NewReaderSize(input, lineBytesMax+1)} }

func (p *pipe) next() (string, error, bool) {
	line, err := p.input.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = p.input.ReadSlice('\n')
		}
		return "", fmt.Errorf("a line is longer than %d bytes; it must be one command", lineBytesMax), true
	}
	if len(line) == 0 {
		return "", nil, false
	}
	if !utf8.Valid(line) {
		return "", errors.New("a line is not UTF-8; it must be one command"), true
	}
	return string(line), nil, true
}

// A prompt on a terminal, with history and completion.
type prompt struct {
	terminal *term.Terminal
	seen     *seen
	// What the terminal gets before what is typed.
	pending []byte
}

func newPrompt(seen *seen) *prompt {
	p := &prompt{seen: seen}
	p.terminal = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{p, os.Stdout}, "quire client> ")
	p.terminal.AutoCompleteCallback = p.complete
	p.terminal.History = openHistory()
	return p
}

func (p *prompt) Read(buffer []byte) (int, error) {
	if len(p.pending) > 0 {
		n := copy(buffer, p.pending)
		p.pending = p.pending[n:]
		return n, nil
	}
	n, err := os.Stdin.Read(buffer)
	for at, typed := range buffer[:n] {
		if typed == 0x03 {
			buffer[at] = giveUp
		}
	}
	return n, err
}

func (p *prompt) next() (string, error, bool) {
	// Raw only while a line is typed, so that Ctrl-C interrupts a command.
	input := int(os.Stdin.Fd())
	before, err := term.MakeRaw(input)
	if err != nil {
		return "", nil, false
	}
	if columns, rows, err := term.GetSize(input); err == nil && columns > 0 {
		_ = p.terminal.SetSize(columns, rows)
	}
	line, err := p.terminal.ReadLine()
	_ = term.Restore(input, before)
	if err != nil {
		fmt.Println()
	}
	return line, nil, err == nil
}

// Ctrl-C gives up a typed line and leaves at an empty one; Tab completes.
func (p *prompt) complete(line string, at int, key rune) (string, int, bool) {
	if key == giveUp {
		if line == "" {
			// Ctrl-D leaves.
			p.pending = []byte{0x04}
		}
		return "", 0, true
	}
	if key != '\t' {
		return "", 0, false
	}
	head, typed, found := p.seen.candidates(line[:at])
	if len(found) == 0 {
		return line, at, true
	}
	common := found[0]
	for _, other := range found {
		for !strings.HasPrefix(other, common) {
			_, last := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-last]
		}
	}
	if len(found) > 1 && common == typed {
		_, _ = fmt.Fprintln(p.terminal, strings.Join(found, "  "))
	}
	return head + common + line[at:], len(head) + len(common), true
}

// Ids and topics that answers have shown, a bounded number of them.
type seen struct{ ids, topics map[string]bool }

func newSeen() *seen { return &seen{map[string]bool{}, map[string]bool{}} }

func (s *seen) topic(name string) {
	if len(s.topics) < seenMax && !strings.ContainsFunc(name, acts) {
		s.topics[name] = true
	}
}

func (s *seen) book(book quire.Book) {
	s.topic(book.Topic)
	if len(s.ids) < seenMax {
		s.ids[strconv.Itoa(int(book.ID))] = true
	}
}

// What can stand in place of the last part of a line, `typed`, behind its head.
func (s *seen) candidates(line string) (head, typed string, found []string) {
	typed = line
	known := map[string]bool{}
	if end := strings.IndexFunc(line, unicode.IsSpace); end < 0 {
		for _, command := range commands {
			known[command.name] = true
		}
	} else {
		typed = strings.TrimLeftFunc(line[end:], unicode.IsSpace)
		switch line[:end] {
		case "search", "topics":
			known = s.topics
		case "lookup", "buy":
			known = s.ids
		}
	}
	for _, candidate := range slices.Sorted(maps.Keys(known)) {
		if strings.HasPrefix(candidate, typed) && len(found) < candidatesMax {
			found = append(found, candidate)
		}
	}
	return line[:len(line)-len(typed)], typed, found
}

// Earlier lines, the latest last; kept in a file, if there can be one.
type history struct {
	lines []string
	file  *os.File
}

func openHistory() *history {
	folder := os.Getenv("XDG_STATE_HOME")
	if home, err := os.UserHomeDir(); folder == "" && err == nil {
		folder = filepath.Join(home, ".local", "state")
	}
	folder = filepath.Join(folder, "quire")
	path := filepath.Join(folder, "quire-client_history")
	h := new(history)
	if text, err := os.ReadFile(path); err == nil {
		kept := slices.Collect(strings.Lines(string(text)))
		for _, line := range kept[max(0, len(kept)-historyMax):] {
			h.lines = append(h.lines, strings.TrimSuffix(line, "\n"))
		}
		if len(kept) > 2*historyMax {
			_ = os.WriteFile(path, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600)
		}
	}
	_ = os.MkdirAll(folder, 0o700)
	if file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil && file.Chmod(0o600) == nil {
		h.file = file
	}
	return h
}

func (h *history) Add(line string) {
	isRepeated := len(h.lines) > 0 && h.lines[len(h.lines)-1] == line
	if strings.TrimSpace(line) == "" || len(line) > historyBytesMax || isRepeated {
		return
	}
	h.lines = append(h.lines[max(0, len(h.lines)-historyMax+1):], line)
	if h.file != nil {
		// History is a convenience.
		_, _ = h.file.WriteString(line + "\n")
	}
}

func (h *history) Len() int { return len(h.lines) }

func (h *history) At(index int) string { return h.lines[len(h.lines)-1-index] }

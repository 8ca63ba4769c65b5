package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"quire.example/quire"
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

// Lines of a pipe or a file.
type pipe struct{ input *bufio.Reader }

func (p *pipe) next() (string, error) {
	line, err := p.input.ReadSlice('\n')
	isLong := err == bufio.ErrBufferFull
	for err == bufio.ErrBufferFull {
		_, err = p.input.ReadSlice('\n')
	}
	switch {
	case isLong:
		return "", fmt.Errorf("a line is longer than %d bytes; it must be one command", lineBytesMax)
	case len(line) == 0:
		return "", io.EOF
	case !utf8.Valid(line):
		return "", errors.New("a line is not UTF-8; it must be one command")
	}
	return string(line), nil
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

func (p *prompt) next() (string, error) {
	// Raw only while a line is typed, so that Ctrl-C interrupts a command.
	input := int(os.Stdin.Fd())
	before, err := term.MakeRaw(input)
	if err != nil {
		return "", io.EOF
	}
	if columns, rows, err := term.GetSize(input); err == nil && columns > 0 {
		_ = p.terminal.SetSize(columns, rows)
	}
	line, err := p.terminal.ReadLine()
	_ = term.Restore(input, before)
	if err != nil {
		fmt.Println()
		return "", io.EOF
	}
	return line, nil
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
	head, found := p.seen.candidates(line[:at])
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
	if len(found) > 1 && head+common == line[:at] {
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

func (s *seen) books(books []quire.Book) {
	for _, book := range books[:min(len(books), seenMax)] {
		s.topic(book.Topic)
		if len(s.ids) < seenMax {
			s.ids[strconv.Itoa(int(book.ID))] = true
		}
	}
}

// What can stand behind the head of a line, in place of its last part.
func (s *seen) candidates(line string) (head string, found []string) {
	command, _, isArgument := strings.Cut(line, " ")
	known := map[string]map[string]bool{"search": s.topics, "topics": s.topics, "lookup": s.ids, "buy": s.ids}[command]
	typed := strings.TrimLeft(strings.TrimPrefix(line, command), " ")
	if !isArgument {
		known, typed = map[string]bool{}, line
		for _, command := range commands {
			known[command.name] = true
		}
	}
	for _, candidate := range slices.Sorted(maps.Keys(known)) {
		if strings.HasPrefix(candidate, typed) && len(found) < candidatesMax {
			found = append(found, candidate)
		}
	}
	return line[:len(line)-len(typed)], found
}

// Earlier lines, the latest last; kept in a file, if there can be one.
type history struct {
	lines []string
	file  *os.File
}

func openHistory() *history {
	home, _ := os.UserHomeDir()
	folder := filepath.Join(cmp.Or(os.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local", "state")), "quire")
	path := filepath.Join(folder, "quire-client_history")
	h := new(history)
	// Without a file the lines of this run are kept.
	text, _ := os.ReadFile(path)
	lines := slices.Collect(strings.Lines(string(text)))
	lines = lines[max(0, len(lines)-historyMax):]
	_ = os.MkdirAll(folder, 0o700)
	_ = os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600)
	for _, line := range lines {
		h.lines = append(h.lines, strings.TrimSpace(line))
	}
	h.file, _ = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	return h
}

func (h *history) Add(line string) {
	isRepeated := len(h.lines) > 0 && h.lines[len(h.lines)-1] == line
	if strings.TrimSpace(line) != "" && len(line) <= historyBytesMax && !isRepeated {
		h.lines = append(h.lines[max(0, len(h.lines)-historyMax+1):], line)
		_, _ = h.file.WriteString(line + "\n")
	}
}

func (h *history) Len() int { return len(h.lines) }

func (h *history) At(index int) string { return h.lines[len(h.lines)-1-index] }

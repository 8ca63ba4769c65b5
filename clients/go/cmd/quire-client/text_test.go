package main

import (
	"slices"
	"testing"
	"time"
)

func TestQuotesKeepBlanksAndApostrophesAreText(t *testing.T) {
	for line, wanted := range map[string][]string{
		" search  distributed   systems\r\n": {"search", "distributed", "systems"},
		`search "two  blanks" end`:           {"search", "two  blanks", "end"},
		"search 'it's mine'":                 {"search", "it's mine"},
		"search children's books":            {"search", "children's", "books"},
		`search ""`:                          {"search", ""},
		"  ":                                 nil,
	} {
		if words, err := split(line); err != nil || !slices.Equal(words, wanted) {
			t.Errorf("%q: %q, %v", line, words, err)
		}
	}
	for _, open := range []string{`search "open`, `search "a"b`} {
		if words, err := split(open); err == nil {
			t.Errorf("%q: %q", open, words)
		}
	}
}

func TestWhatATerminalObeysIsEscaped(t *testing.T) {
	for text, wanted := range map[string]string{
		"plain – ünïcödé 😈 א":    "plain – ünïcödé 😈 א",
		"\x1b[2J\u009b\a\x7f":    `\u{1b}[2J\u{9b}\u{7}\u{7f}`,
		"a\u202eb\u2066c\u2028d": `a\u{202e}b\u{2066}c\u{2028}d`,
		"\U000e0041\r\n\t\u200c": "\\u{e0041}\\r\\n\\t\u200c",
	} {
		if found := escaped(text); found != wanted {
			t.Errorf("%q: %s", text, found)
		}
	}
	if line := jsonLine(map[string]any{"b": "\x7f\U000e0041\b\f<é", "a": nil}); line != `{"a":null,"b":"\u007f\udb40\udc41\b\f<é"}` {
		t.Error(line)
	}
}

func TestColumnsOfATerminal(t *testing.T) {
	for text, columns := range map[string]int{"": 0, "abc": 3, "日本": 4, "ｆ": 2, "cafe\u0301": 4, "a\u200db": 2, "ｱ½": 2} {
		if found := columnsOf(text); found != columns {
			t.Errorf("%q: %d", text, found)
		}
	}
}

func TestWordsForAShell(t *testing.T) {
	for word, wanted := range map[string]string{
		"@%_-+=:,./aZ9": "@%_-+=:,./aZ9", "": "''", "it's": `'it'"'"'s'`, "ü b": "'ü b'", "a\x1bb": `a\u{1b}b`,
	} {
		if found := quoted(word); found != wanted {
			t.Errorf("%q: %s", word, found)
		}
	}
}

func TestTimes(t *testing.T) {
	for text, wanted := range map[string]time.Duration{
		"5": 5 * time.Second, "0.5": time.Second / 2, "1ms": time.Millisecond, "2min": 2 * time.Minute, "86400": 24 * time.Hour,
	} {
		if found, ok := duration(text); !ok || found != wanted {
			t.Errorf("%s: %v, %v", text, found, ok)
		}
	}
	for _, text := range []string{"", "0", "0.9ms", "86401", "-5", "5d", "nan", "1e3", "5 s", "24h", "9999999999999999999999"} {
		if found, ok := duration(text); ok {
			t.Errorf("%s: %v", text, found)
		}
	}
}

func TestCompletion(t *testing.T) {
	seen := newSeen()
	seen.topic("distributed systems")
	seen.topic("\x1b[2J")
	for line, wanted := range map[string][]string{
		"lo":                   {"lookup"},
		"search ":              {"distributed systems"},
		"search distributed s": {"distributed systems"},
		"search  dis":          {"distributed systems"},
		"help d":               nil,
	} {
		if _, found := seen.candidates(line); !slices.Equal(found, wanted) {
			t.Errorf("%q: %q", line, found)
		}
	}
}

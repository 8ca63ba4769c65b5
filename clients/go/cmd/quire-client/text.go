package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Characters that act on a terminal instead of being shown: controls, changes of direction, line separators, and marks and
// tags that are not seen.
var acting = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0000, Hi: 0x001f, Stride: 1}, {Lo: 0x007f, Hi: 0x009f, Stride: 1}, {Lo: 0x061c, Hi: 0x061c, Stride: 1},
		{Lo: 0x200b, Hi: 0x200b, Stride: 1}, {Lo: 0x200e, Hi: 0x200f, Stride: 1}, {Lo: 0x2028, Hi: 0x202e, Stride: 1},
		{Lo: 0x2060, Hi: 0x206f, Stride: 1}, {Lo: 0xfeff, Hi: 0xfeff, Stride: 1}, {Lo: 0xfff9, Hi: 0xfffb, Stride: 1},
	},
	R32:         []unicode.Range32{{Lo: 0xe0000, Hi: 0xe007f, Stride: 1}},
	LatinOffset: 2,
}

func acts(r rune) bool { return unicode.Is(acting, r) }

// The text in one line that a terminal shows as it is.
func escaped(text string) string {
	return replaced(text, func(r rune) string {
		switch r {
		case '\t':
			return `\t`
		case '\r':
			return `\r`
		case '\n':
			return `\n`
		}
		return fmt.Sprintf(`\u{%x}`, r)
	})
}

// An object in one line of JSON.
func jsonLine(object map[string]any) string {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object); err != nil {
		panic(err)
	}
	return replaced(strings.TrimSuffix(line.String(), "\n"), func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

func replaced(text string, by func(rune) string) string {
	if !strings.ContainsFunc(text, acts) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if acts(r) {
			out.WriteString(by(r))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9@%_\-+=:,./]+$`)

// A word of a command line for a shell.
func quoted(word string) string {
	switch {
	case plainWord.MatchString(word):
		return word
	case strings.ContainsFunc(word, acts):
		return escaped(word)
	}
	return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
}

// A column's head, and whether it holds numbers.
type column struct {
	head     string
	isNumber bool
}

// Rows below heads, numbers to the right.
func table(columns []column, rows [][]string) string {
	heads, widths, lines := make([]string, len(columns)), make([]int, len(columns)), []string{}
	for at, column := range columns {
		heads[at] = column.head
	}
	rows = slices.Insert(rows, 0, heads)
	for _, row := range rows {
		for at := range row {
			row[at] = escaped(row[at])
			widths[at] = max(widths[at], columnsOf(row[at]))
		}
	}
	for _, row := range rows {
		for at, cell := range row {
			blanks := strings.Repeat(" ", widths[at]-columnsOf(cell))
			if columns[at].isNumber {
				row[at] = blanks + cell
			} else {
				row[at] = cell + blanks
			}
		}
		lines = append(lines, strings.TrimRight(strings.Join(row, "  "), " "))
	}
	return strings.Join(lines, "\n")
}

// The columns that a text takes on a terminal.
func columnsOf(text string) (columns int) {
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case r < utf8.RuneSelf:
			columns++
		case r == '\u200d' || unicode.In(r, unicode.Mn, unicode.Me):
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			columns += 2
		default:
			columns++
		}
	}
	return columns
}

// Splits a line at white space. A word that begins with a quote goes on to the same quote before white space or the end.
func split(line string) (words []string, err error) {
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeftFunc(rest, unicode.IsSpace) {
		quote := rest[0]
		if quote != '"' && quote != '\'' {
			end := strings.IndexFunc(rest, unicode.IsSpace)
			if end < 0 {
				end = len(rest)
			}
			words, rest = append(words, rest[:end]), rest[end:]
			continue
		}
		end := 1
		for ; ; end++ {
			next := strings.IndexByte(rest[end:], quote)
			if next < 0 {
				return nil, fmt.Errorf("the quote %c is not closed; close it, or leave it out", quote)
			}
			end += next
			if after, size := utf8.DecodeRuneInString(rest[end+1:]); size == 0 || unicode.IsSpace(after) {
				break
			}
		}
		words, rest = append(words, rest[1:end]), rest[end+1:]
	}
	return words, nil
}

// Package connect has what the command line and the driver share: flags, addresses and certificates from files.
package connect

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"quire.example/quire"
)

const retriesMax = 1_000_000

// Settings are the flags for reaching a store.
type Settings struct {
	Token, CA, Certificate, KeyFile string
	Retries                         int
	// Timeout is the longest time of a command; 0 if absent.
	Timeout time.Duration
}

var (
	acting = regexp.MustCompile(`\pC`)
	bare   = regexp.MustCompile(`^[A-Za-z0-9@%_\-+=:,./]+$`)
)

// Add adds the flags to a set; what is set already stays.
func (s *Settings) Add(flags *pflag.FlagSet) {
	flags.StringVar(&s.Token, "token", cmp.Or(s.Token, os.Getenv("QUIRE_TOKEN")),
		"`token` for a server that asks for one; better in the variable QUIRE_TOKEN")
	flags.Lookup("token").DefValue = ""
	flags.StringVar(&s.CA, "ca", s.CA, "`file` with certificates in PEM to trust, instead of the system's")
	flags.StringVar(&s.Certificate, "certificate", s.Certificate, "`file` with a certificate in PEM to show to the server")
	flags.StringVar(&s.KeyFile, "key-file", s.KeyFile, "`file` with the private key of --certificate")
	flags.IntVar(&s.Retries, "retries", s.Retries, "how often to send again")
	flags.Func("timeout", "longest `time` for a command, as 500ms, 5s or 2min", s.setTimeout)
}

func (s *Settings) setTimeout(text string) (err error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	s.Timeout, err = time.ParseDuration(strings.Replace(text, "min", "m", 1))
	if err != nil || s.Timeout < time.Millisecond || s.Timeout > 24*time.Hour {
		return errors.New("it must be a time from 1ms to 24h, as 500ms, 5s or 2min")
	}
	return nil
}

// Files returns the files of certificates and keys, each behind its flag.
func (s *Settings) Files() (words []string) {
	for _, file := range [][]string{{"--ca", s.CA}, {"--certificate", s.Certificate}, {"--key-file", s.KeyFile}} {
		if file[1] != "" {
			words = append(words, file...)
		}
	}
	return words
}

// Plain is the text of others, without what acts on a terminal.
func Plain(text string) string { return acting.ReplaceAllString(text, "\ufffd") }

// Quoted is a command line as a shell takes it.
func Quoted(words []string) string {
	line := slices.Clone(words)
	for at, word := range line {
		if !bare.MatchString(word) {
			line[at] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(line, " ")
}

// Client makes a client of the store at addresses as people write them.
func (s *Settings) Client(given string) (*quire.Client, error) {
	switch {
	case s.Retries < 0 || s.Retries > retriesMax:
		return nil, fmt.Errorf("--retries is %d; it must be 0 to %d", s.Retries, retriesMax)
	case strings.ContainsFunc(s.Token, func(r rune) bool { return r < ' ' || r > '~' }):
		return nil, errors.New("--token has characters that no token has")
	case (s.Certificate == "") != (s.KeyFile == ""):
		return nil, errors.New("--certificate and --key-file belong together; give both or neither")
	}
	options := []quire.Option{quire.WithToken(s.Token), quire.WithRetries(s.Retries)}
	if strings.Contains(given, "https://") {
		config, err := s.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, quire.WithTLS(config))
	}
	return quire.New(given, options...)
}

// Reads the certificates to trust, or takes the system's, and a client certificate with its key if they are named.
func (s *Settings) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		// A file that cannot be read has no certificates either.
		trusted, _ := os.ReadFile(s.CA)
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(trusted) {
			return nil, fmt.Errorf("cannot read a certificate in %s", s.CA)
		}
	}
	if s.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(s.Certificate, s.KeyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

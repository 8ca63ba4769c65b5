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
	"strconv"
	"strings"

	"quire.example/quire"
)

// Flags are those that are given, with their values.
type Flags map[string]string

// Has is whether a flag is given.
func (f Flags) Has(name string) bool {
	_, ok := f[name]
	return ok
}

// Parse reads a command line up to its end, or to --help or --version. takesValue names the flags that there are.
func Parse(args []string, takesValue map[string]bool) (f Flags, words []string, err error) {
	f = Flags{}
	for at := 0; at < len(args) && !f.Has("--help") && !f.Has("--version"); at++ {
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

// Client makes a client of the store at addresses as people write them, with the flags that say how to reach it.
func Client(given string, f Flags) (client *quire.Client, isTLS bool, err error) {
	times, ok := Whole(cmp.Or(f["--retries"], "3"))
	if !ok || times > 1_000_000 || f.Has("--retries") && f["--retries"] == "" {
		return nil, false, fmt.Errorf("--retries is '%s'; it must be a whole number from 0 to 1000000", f["--retries"])
	}
	if strings.ContainsFunc(f["--token"], func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, false, errors.New("--token has characters that no token has")
	}
	if f.Has("--certificate") != f.Has("--key-file") {
		return nil, false, errors.New("--certificate and --key-file belong together; give both or neither")
	}
	addresses, isTLS, err := Addresses(given)
	if err != nil {
		return nil, false, err
	}
	options := []quire.Option{quire.WithToken(f["--token"]), quire.WithRetries(int(times))}
	if isTLS {
		config, err := tlsConfig(f["--ca"], f["--certificate"], f["--key-file"])
		if err != nil {
			return nil, true, err
		}
		options = append(options, quire.WithTLS(config))
	}
	client, err = quire.New(addresses, options...)
	return client, isTLS, err
}

// Reads the certificates to trust, or takes the system's, and a client certificate with its key if they are named.
func tlsConfig(ca, certificate, keyFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		// A file that cannot be read has no certificates either.
		trusted, _ := os.ReadFile(ca)
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(trusted) {
			return nil, fmt.Errorf("cannot read %s", ca)
		}
	}
	if certificate == "" {
		return config, nil
	}
	own, _ := os.ReadFile(certificate)
	if !x509.NewCertPool().AppendCertsFromPEM(own) {
		return nil, fmt.Errorf("cannot read %s", certificate)
	}
	pair, err := tls.LoadX509KeyPair(certificate, keyFile)
	config.Certificates = []tls.Certificate{pair}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s", keyFile)
	}
	return config, nil
}

var wholeForm = regexp.MustCompile(`^\+?[0-9]+$`)

// Whole reads a whole number of at most 32 bits: ASCII digits, a + before them if need be.
func Whole(text string) (int32, bool) {
	number, err := strconv.ParseInt(text, 10, 32)
	return int32(number), err == nil && wholeForm.MatchString(text)
}

// PortUsual is the server's port if none is said.
const PortUsual = "10086"

// Addresses reads addresses with commas between: HOST:PORT, a host, or :PORT, each with http:// or https:// before it if need
// be. It returns them as the library takes them, and whether the server speaks TLS.
func Addresses(text string) (addresses string, isTLS bool, err error) {
	parts := strings.Split(text, ",")
	for at, part := range parts {
		scheme, rest, hasScheme := strings.Cut(part, "://")
		if !hasScheme {
			scheme, rest = "http", part
		}
		address, want := address(part, scheme, rest, hasScheme)
		if want == "" && at > 0 && isTLS != (scheme == "https") {
			want = "of one kind with the others: http:// throughout, or https://"
		}
		if want != "" {
			return "", false, fmt.Errorf("'%s' is no address; it must be %s", part, want)
		}
		parts[at], isTLS = address, scheme == "https"
	}
	return strings.Join(parts, ","), isTLS, nil
}

// Reads one address; `want` is what would be right if it is none.
func address(text, scheme, rest string, hasScheme bool) (address, want string) {
	if scheme != "http" && scheme != "https" {
		return "", "http://" + rest + " or https://" + rest
	}
	if hasScheme {
		rest = strings.TrimSuffix(rest, "/")
	}
	if before, _, ok := strings.Cut(rest, "/"); ok {
		return "", "without a path: " + text[:strings.Index(text, rest)] + before
	}
	host, port := rest, PortUsual
	if colon := strings.LastIndexByte(rest, ':'); !isHost(rest) && colon >= 0 {
		host, port = rest[:colon], rest[colon+1:]
	}
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case !isHost(host) || rest == "":
		return "", "HOST:PORT, as 127.0.0.1:" + PortUsual + " or [::1]:" + PortUsual
	case err != nil:
		return "", "HOST:PORT with a port up to 65535, as " + host + ":" + PortUsual
	case number == 0:
		return "", "HOST:PORT with a port from 1 to 65535, as " + host + ":" + PortUsual
	}
	return cmp.Or(host, "127.0.0.1") + ":" + strconv.FormatUint(number, 10), ""
}

// A name, an IPv4 address, an IPv6 address in brackets, or nothing.
var hostForm = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]*)$`)

func isHost(text string) bool { return hostForm.MatchString(text) }

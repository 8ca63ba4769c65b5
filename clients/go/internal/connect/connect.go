// Package connect has what the command line and the driver share: addresses, certificates from files, and books as JSON.
package connect

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"quire"
)

// TLS reads the certificates to trust and, if they are named, a client certificate and its key.
func TLS(ca, certificate, keyFile string) (*tls.Config, error) {
	trusted, err := os.ReadFile(ca)
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if err != nil || !config.RootCAs.AppendCertsFromPEM(trusted) {
		return nil, cannotRead(ca)
	}
	if certificate == "" {
		return config, nil
	}
	own, err := os.ReadFile(certificate)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(own) {
		return nil, cannotRead(certificate)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, cannotRead(keyFile)
	}
	pair, err := tls.X509KeyPair(own, key)
	if err != nil {
		return nil, cannotRead(keyFile)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

func cannotRead(file string) error { return fmt.Errorf("cannot read %s", file) }

// PortUsual is the server's port if none is said.
const PortUsual = "10086"

// Addresses reads addresses with commas between: HOST:PORT, a host, or :PORT, each with http:// or https:// before it if need
// be. It returns them as the library takes them, and whether the server speaks TLS.
func Addresses(text string) (addresses string, isTLS bool, err error) {
	parts := strings.Split(text, ",")
	for at, part := range parts {
		scheme, rest, ok := strings.Cut(part, "://")
		if !ok {
			scheme, rest = "http", part
		}
		address, want := address(scheme, rest)
		if want == "" && at > 0 && isTLS != (scheme == "https") {
			want = "of one kind: http:// throughout, or https://"
		}
		if want != "" {
			return "", false, fmt.Errorf("'%s' is no address; it must be %s", text, want)
		}
		parts[at], isTLS = address, scheme == "https"
	}
	return strings.Join(parts, ","), isTLS, nil
}

// Reads an address behind its scheme; `want` is what would be right if it is none.
func address(scheme, rest string) (address, want string) {
	const usual = "HOST:PORT, as 127.0.0.1:" + PortUsual + " or [::1]:" + PortUsual
	if scheme != "http" && scheme != "https" {
		return "", "http://" + rest + " or https://" + rest
	}
	if before, _, ok := strings.Cut(rest, "/"); ok {
		return "", "without a path: " + before
	}
	host, port := rest, PortUsual
	colon := strings.LastIndexByte(rest, ':')
	if !isHost(rest) && colon >= 0 {
		host, port = rest[:colon], rest[colon+1:]
	}
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case !isHost(host) || rest == "":
		return "", usual
	case err != nil:
		return "", "HOST:PORT with a port up to 65535, as " + host + ":" + PortUsual
	case number == 0:
		return "", "HOST:PORT with a port from 1 to 65535, as " + host + ":" + PortUsual
	case host == "":
		host = "127.0.0.1"
	}
	return host + ":" + strconv.FormatUint(number, 10), ""
}

// A name, an IPv4 address, an IPv6 address in brackets, or nothing.
var hostForm = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]*)$`)

func isHost(text string) bool { return hostForm.MatchString(text) }

// BookJSON is a book as a line of JSON has it.
func BookJSON(book quire.Book) map[string]any {
	return map[string]any{
		"id": book.ID, "title": book.Title, "topic": book.Topic, "stock": book.Stock, "price_cents": int64(book.Price),
	}
}

// Package connect has what the command line and the driver share: addresses, certificates from files, and books as JSON.
package connect

import (
	"cmp"
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
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	// A file that cannot be read has no certificates either.
	trusted, _ := os.ReadFile(ca)
	if !config.RootCAs.AppendCertsFromPEM(trusted) {
		return nil, fmt.Errorf("cannot read %s", ca)
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

// BookJSON is a book as a line of JSON has it.
func BookJSON(book quire.Book) map[string]any {
	return map[string]any{
		"id": book.ID, "title": book.Title, "topic": book.Topic, "stock": book.Stock, "price_cents": int64(book.Price),
	}
}

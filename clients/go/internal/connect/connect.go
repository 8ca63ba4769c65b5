// Package connect has what the command line and the driver share: flags, addresses and certificates from files.
package connect

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"quire.example/quire"
)

const (
	portUsual  = "10086"
	retriesMax = 1_000_000
)

// Settings say how to reach a store.
type Settings struct {
	Token, CA, Certificate, KeyFile string
	Retries                         int
}

// Add adds the flags to a set; what is set already stays.
func (s *Settings) Add(flags *pflag.FlagSet) {
	flags.StringVar(&s.Token, "token", cmp.Or(s.Token, os.Getenv("QUIRE_TOKEN")),
		"`token` for a server that asks for one; better in the variable QUIRE_TOKEN")
	flags.Lookup("token").DefValue = ""
	flags.StringVar(&s.CA, "ca", s.CA, "`file` with certificates in PEM to trust, instead of the system's")
	flags.StringVar(&s.Certificate, "certificate", s.Certificate, "`file` with a certificate in PEM to show to the server")
	flags.StringVar(&s.KeyFile, "key-file", s.KeyFile, "`file` with the private key of --certificate")
	flags.IntVar(&s.Retries, "retries", s.Retries, "how often to send again")
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
	addresses, isTLS, err := Addresses(given)
	if err != nil {
		return nil, err
	}
	options := []quire.Option{quire.WithToken(s.Token), quire.WithRetries(s.Retries)}
	if isTLS {
		config, err := s.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, quire.WithTLS(config))
	}
	return quire.New(addresses, options...)
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

// Addresses reads addresses with commas between: HOST:PORT, a host, or :PORT, each with http:// or https:// before it if need
// be. It returns them as the library takes them, and whether the server speaks TLS.
func Addresses(text string) (addresses string, isTLS bool, err error) {
	parts := strings.Split(text, ",")
	for at, part := range parts {
		whole := part
		if !strings.Contains(part, "://") {
			whole = "http://" + part
		}
		parsed, err := url.Parse(whole)
		if err != nil || part == "" || parsed.User != nil || strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" {
			return "", false, fmt.Errorf("'%s' is no address; it must be HOST:PORT, as 127.0.0.1:%s", part, portUsual)
		}
		port, err := strconv.ParseUint(cmp.Or(parsed.Port(), portUsual), 10, 16)
		if err != nil || port == 0 {
			return "", false, fmt.Errorf("'%s' is no address; its port must be 1 to 65535", part)
		}
		isOther := at > 0 && isTLS != (parsed.Scheme == "https")
		if isOther || parsed.Scheme != "http" && parsed.Scheme != "https" {
			return "", false, fmt.Errorf("'%s' is no address here; write http:// throughout, or https://", part)
		}
		host := strings.TrimSuffix(parsed.Host, ":"+parsed.Port())
		parts[at], isTLS = cmp.Or(host, "127.0.0.1")+":"+strconv.FormatUint(port, 10), parsed.Scheme == "https"
	}
	return strings.Join(parts, ","), isTLS, nil
}

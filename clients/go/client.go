// Package quire is a client of Quire, a bookstore and key-value store over gRPC.
//
// A purchase happens once however often it is sent, because it carries a key; [Client.Buy] sends it again by itself until its
// outcome is known or its time is over. What the store decides is returned as a value; faults are errors of type [*Error].
//
// A call ends with the deadline of its context. Without one a read and a write have 5 seconds, a purchase 30, and a watch
// lasts until its context is cancelled. The outgoing metadata of the context, such as a traceparent, goes with the call;
// a tracestate only if it and the traceparent are valid and it has at most 512 bytes.
package quire

import (
	"cmp"
	"crypto/tls"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

const (
	portUsual      = "10086"
	retriesDefault = 3
	retriesMax     = 1_000_000
	keepaliveTime  = 10 * time.Second
	userAgent      = "quire-client-go/0.1.0"
)

// A value of 1 GiB, the largest that a server can be set to keep, with what is around it.
const messageBytesMax = 1<<30 + 1<<20

// Given with each call, because gRPC copies defaults for calls that have options of their own.
var messageSizes = []grpc.CallOption{
	grpc.MaxCallRecvMsgSize(messageBytesMax), grpc.MaxCallSendMsgSize(math.MaxInt),
}

// Client holds the connections to a store. It is safe for concurrent use.
type Client struct {
	conn      *grpc.ClientConn
	addresses string
	retries   int
	// What each call sends as metadata, in pairs.
	credential []string
}

type options struct {
	tls     *tls.Config
	token   string
	retries int
}

// Option changes how a client connects and asks.
type Option func(*options)

// WithTLS makes the client speak TLS. The zero config trusts the system's certificates; RootCAs names others, and
// Certificates holds what the client shows to a server that asks.
func WithTLS(config *tls.Config) Option { return func(o *options) { o.tls = config } }

// WithToken sends a token with every call. Over a connection without TLS everyone on the way can read it.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithRetries sets how often a call is sent again; 3 if absent. With 0 a purchase in doubt is not sent again either.
func WithRetries(times int) Option { return func(o *options) { o.retries = times } }

// New makes a client of the store at an address, or at several with commas between, which it asks in turns: HOST:PORT, a host, or
// :PORT, with https:// before it for TLS. It connects with the first call.
func New(addresses string, opts ...Option) (*Client, error) {
	o := options{retries: retriesDefault}
	for _, option := range opts {
		option(&o)
	}
	if o.retries < 0 || o.retries > retriesMax {
		return nil, argument("retries is %d; it must be from 0 to %d", o.retries, retriesMax)
	}
	credential, err := bearer(o.token)
	if err != nil {
		return nil, err
	}
	parts, isTLS, err := parse(addresses)
	if err != nil {
		return nil, err
	}
	var state resolver.State
	for _, address := range parts {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: address})
	}
	places := manual.NewBuilderWithScheme("quire")
	places.InitialState(state)
	transport := insecure.NewCredentials()
	if o.tls != nil || isTLS {
		transport = credentials.NewTLS(o.tls)
	}
	// A connection that does not come within this time is given up, so that the next one has a chance in the same purchase.
	connectTimeout := waiting(purchaseTimeout / time.Duration(min(o.retries, 3)+1))
	conn, err := grpc.NewClient("quire:///"+state.Addresses[0].Addr,
		grpc.WithResolvers(places),
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(userAgent),
		grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"`+policy+`": {}}]}`),
		// gRPC's own retries know neither the purchase's key nor its deadline.
		grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: pauseFirst, Multiplier: 2, Jitter: 0.2, MaxDelay: pauseMax},
			MinConnectTimeout: max(connectTimeout, time.Second),
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTime}),
	)
	if err != nil {
		return nil, argument("%v", err)
	}
	return &Client{conn: conn, addresses: strings.Join(parts, ","), retries: o.retries, credential: credential}, nil
}

// Close ends the connections, and the calls that wait.
func (c *Client) Close() error { return c.conn.Close() }

func bearer(token string) ([]string, error) {
	if strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, argument("the token has characters that no token has")
	}
	if token == "" {
		return nil, nil
	}
	// HTTP has no blanks at the end of a value.
	return []string{"authorization", strings.TrimRight("Bearer "+token, " ")}, nil
}

// Reads addresses with commas between: HOST:PORT, a host, or :PORT, each with http:// or https:// before it if need be. It returns
// HOST:PORT of each, and true if they have https://.
func parse(text string) (addresses []string, isTLS bool, err error) {
	parts := strings.Split(text, ",")
	for at, part := range parts {
		whole := part
		if !strings.Contains(part, "://") {
			whole = "http://" + part
		}
		parsed, err := url.Parse(whole)
		if err != nil || part == "" || parsed.User != nil || strings.Trim(parsed.Path, "/") != "" || strings.ContainsAny(part, "?#") {
			return nil, false, argument("'%s' is no address; it must be HOST:PORT, as 127.0.0.1:%s", part, portUsual)
		}
		port, err := strconv.ParseUint(cmp.Or(parsed.Port(), portUsual), 10, 16)
		if err != nil || port == 0 {
			return nil, false, argument("'%s' is no address; its port must be 1 to 65535", part)
		}
		isOther := at > 0 && isTLS != (parsed.Scheme == "https")
		if isOther || parsed.Scheme != "http" && parsed.Scheme != "https" {
			return nil, false, argument("'%s' is no address here; write http:// throughout, or https://", part)
		}
		host := strings.TrimSuffix(parsed.Host, ":"+parsed.Port())
		parts[at], isTLS = cmp.Or(host, "127.0.0.1")+":"+strconv.FormatUint(port, 10), parsed.Scheme == "https"
	}
	return parts, isTLS, nil
}

package quire

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "quire.example/quire/internal/wire/bookstore"
)

// A store that answers purchases one after the other as it is told; the last answer again and again.
type double struct {
	pb.UnimplementedBookStoreServer
	answers []func(context.Context) (*pb.BuyBookReply, error)
	calls   atomic.Int32
	keys    chan string
}

func (d *double) Buy(ctx context.Context, request *pb.ItemNumberRequest) (*pb.BuyBookReply, error) {
	d.keys <- string(request.IdempotencyKey)
	at := min(int(d.calls.Add(1)), len(d.answers)) - 1
	return d.answers[at](ctx)
}

func says(code codes.Code) func(context.Context) (*pb.BuyBookReply, error) {
	return func(context.Context) (*pb.BuyBookReply, error) { return nil, status.Error(code, "no") }
}

func sells(context.Context) (*pb.BuyBookReply, error) {
	outcome := pb.BuyOutcome_BUY_OUTCOME_BOUGHT
	return &pb.BuyBookReply{Success: true, Outcome: outcome, PurchaseNumber: 7, Replayed: true}, nil
}

func start(t *testing.T, answers ...func(context.Context) (*pb.BuyBookReply, error)) (*double, string) {
	t.Helper()
	store := &double{answers: answers, keys: make(chan string, 100)}
	server := grpc.NewServer()
	pb.RegisterBookStoreServer(server, store)
	listener := listen(t)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return store, listener.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func connect(t *testing.T, addresses string, options ...Option) *Client {
	t.Helper()
	client, err := New(addresses, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func soon(t *testing.T, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return ctx
}

func TestAPurchaseInDoubtIsSentAgainWithItsKey(t *testing.T) {
	store, address := start(t, says(codes.Unavailable), says(codes.InvalidArgument), sells)
	purchase, err := connect(t, address).Buy(soon(t, 20*time.Second), 1)
	if err != nil || purchase.Outcome != Bought || !purchase.Replayed || purchase.Number != 7 {
		t.Fatalf("%+v, %v", purchase, err)
	}
	for range 3 {
		if key := <-store.keys; key != purchase.Key || len(key) != 32 {
			t.Errorf("sent with the key %q, not %q", key, purchase.Key)
		}
	}
}

func TestARefusalIsOneOnlyIfNoAttemptIsInDoubt(t *testing.T) {
	store, address := start(t, says(codes.Internal))
	_, err := connect(t, address).Buy(soon(t, 20*time.Second), 1)
	if fault, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, ErrRefused) || fault.Code != codes.Internal {
		t.Errorf("%v", err)
	}
	if calls := store.calls.Load(); calls != 1 {
		t.Errorf("sent %d times", calls)
	}
	_, address = start(t, says(codes.Unavailable), says(codes.Unauthenticated))
	purchase, err := connect(t, address).Buy(soon(t, time.Second), 1, Key("k"))
	if err != nil || purchase.Outcome != Unknown || purchase.Key != "k" || purchase.Cause.Code != codes.Unavailable {
		t.Errorf("%+v, %v", purchase, err)
	}
}

func TestACodeThatNoOneKnowsIsDoubt(t *testing.T) {
	_, address := start(t, says(57), sells)
	purchase, err := connect(t, address).Buy(soon(t, 20*time.Second), 1)
	if err != nil || purchase.Outcome != Bought {
		t.Errorf("%+v, %v", purchase, err)
	}
}

func TestSuccessWithoutAnAnswerIsDoubt(t *testing.T) {
	server := grpc.NewServer()
	none := func(any, grpc.ServerStream) error { return nil }
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "bookstore.BookStore", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{StreamName: "Buy", Handler: none}},
	}, nil)
	listener := listen(t)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	purchase, err := connect(t, listener.Addr().String(), WithRetries(0)).Buy(soon(t, 20*time.Second), 1)
	if err != nil || purchase.Outcome != Unknown {
		t.Errorf("%+v, %v", purchase, err)
	}
}

func TestPushbackOfTheServer(t *testing.T) {
	pushes := func(text string) func(context.Context) (*pb.BuyBookReply, error) {
		return func(ctx context.Context) (*pb.BuyBookReply, error) {
			if err := grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", text)); err != nil {
				return nil, err
			}
			return nil, status.Error(codes.ResourceExhausted, "full")
		}
	}
	for _, never := range []string{"-1", "soon", "99999999999999999999", "9223372036854775807"} {
		store, address := start(t, pushes(never), sells)
		if _, err := connect(t, address).Buy(soon(t, 20*time.Second), 1); !errors.Is(err, ErrRefused) || store.calls.Load() != 1 {
			t.Errorf("%s: %v after %d calls", never, err, store.calls.Load())
		}
	}
	_, address := start(t, pushes("0"), sells)
	if purchase, err := connect(t, address).Buy(soon(t, 20*time.Second), 1); err != nil || purchase.Outcome != Bought {
		t.Errorf("%+v, %v", purchase, err)
	}
}

// gRPC gives a broken stream codes that servers refuse with as well.
func TestABrokenStreamIsDoubtWhateverItsCode(t *testing.T) {
	for _, reset := range []http2.ErrCode{
		http2.ErrCodeInternal, http2.ErrCodeEnhanceYourCalm, http2.ErrCodeInadequateSecurity, http2.ErrCodeCancel,
	} {
		listener := listen(t)
		go resetStreams(listener, reset)
		purchase, err := connect(t, listener.Addr().String(), WithRetries(0)).Buy(soon(t, 20*time.Second), 1)
		if err != nil || purchase.Outcome != Unknown {
			t.Errorf("%v: %+v, %v", reset, purchase, err)
		}
	}
}

// A server that ends each stream once its request is there.
func resetStreams(listener net.Listener, code http2.ErrCode) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if data, ok := frame.(*http2.DataFrame); ok && data.StreamEnded() {
			_ = framer.WriteRSTStream(data.StreamID, code)
		}
	}
}

func TestNothingIsSentWithoutAConnection(t *testing.T) {
	refusing := listen(t)
	address := refusing.Addr().String()
	_ = refusing.Close()
	client := connect(t, address, WithRetries(0))
	_, err := client.Buy(soon(t, 20*time.Second), 1)
	if fault, ok := errors.AsType[*Error](err); !ok || fault.Kind != ErrUnreachable || fault.Sent || fault.Code != codes.Unavailable {
		t.Fatalf("%v", err)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), address+" cannot be reached: ") {
		t.Errorf("%v; it must have the address and the cause", err)
	}
	// The first attempt after that tries to connect anew.
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterBookStoreServer(server, &double{
		answers: []func(context.Context) (*pb.BuyBookReply, error){sells}, keys: make(chan string, 1),
	})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	if purchase, err := client.Buy(soon(t, 20*time.Second), 1); err != nil || purchase.Outcome != Bought {
		t.Errorf("%+v, %v", purchase, err)
	}
}

func TestASilentListenerIsUnreachable(t *testing.T) {
	_, err := connect(t, listen(t).Addr().String()).Buy(soon(t, 300*time.Millisecond), 1)
	if fault, ok := errors.AsType[*Error](err); !ok || fault.Kind != ErrUnreachable || fault.Sent {
		t.Errorf("%v", err)
	}
}

func TestTheCallersCancellationEndsAPurchaseInDoubt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, address := start(t, func(serving context.Context) (*pb.BuyBookReply, error) {
		cancel()
		<-serving.Done()
		return nil, status.Error(codes.Canceled, "")
	})
	purchase, err := connect(t, address).Buy(ctx, 1)
	if err != nil || purchase.Outcome != Unknown || !errors.Is(purchase.Cause, context.Canceled) {
		t.Errorf("%+v, %v", purchase, err)
	}
}

func TestTheCallersCancellationEndsThePauseOfARefusedPurchase(t *testing.T) {
	_, address := start(t, sells)
	ctx, cancel := context.WithCancel(context.Background())
	fault := connect(t, address).retry(ctx, keyed, 0, func(context.Context, time.Time) *Error {
		cancel()
		return &Error{Kind: ErrRefused, Code: codes.ResourceExhausted, Sent: true}
	})
	if !errors.Is(fault, ErrUnreachable) || !errors.Is(fault, context.Canceled) {
		t.Errorf("%v; nothing was done, and the server's refusal was not the end", fault)
	}
}

func TestAFaultSaysWhatTheServerDid(t *testing.T) {
	_, address := start(t, says(codes.Unavailable))
	purchase, err := connect(t, address, WithRetries(0)).Buy(soon(t, 20*time.Second), 1)
	if wanted := address + " answered UNAVAILABLE: no"; err != nil || purchase.Message != wanted {
		t.Errorf("%+v, %v; the message must be %s", purchase, err, wanted)
	}
}

func TestWrongArgumentsAreNotSent(t *testing.T) {
	store, address := start(t, sells)
	client := connect(t, address)
	ctx := context.Background()
	_, id := client.Buy(ctx, 0)
	_, quantity := client.Buy(ctx, 1, Quantity(0))
	_, key := client.Buy(ctx, 1, Key(""))
	_, ttl := client.Put(ctx, "k", nil, TTL(-1))
	_, version := client.Put(ctx, "k", nil, ExpectedVersion(1))
	_, token := client.Operator("")
	_, option := New(address, WithRetries(-1))
	_, place := New("there:0")
	for _, err := range []error{id, quantity, key, ttl, version, token, option, place} {
		if !errors.Is(err, ErrArgument) {
			t.Errorf("%v", err)
		}
	}
	if calls := store.calls.Load(); calls != 0 {
		t.Errorf("sent %d times", calls)
	}
}

func TestAddresses(t *testing.T) {
	for text, wanted := range map[string]string{
		"localhost": "localhost:10086", ":80": "127.0.0.1:80", "http://[::1]/": "[::1]:10086", "[::1]:80": "[::1]:80",
		"a:1,b": "a:1,b:10086", "https://a,https://b:1": "a:10086,b:1",
	} {
		found, isTLS, err := parse(text)
		if err != nil || isTLS != strings.HasPrefix(text, "https") || strings.Join(found, ",") != wanted {
			t.Errorf("%s: %s, %v, %v", text, found, isTLS, err)
		}
	}
	for _, text := range []string{
		"ftp://there:1", "http://there:80/a/b", "there#x", "#x", "there?", "there:+80", "there:0", "there:65536", "::1", "", "a:1,", "http://a:1,https://b:10",
	} {
		if found, _, err := parse(text); !errors.Is(err, ErrArgument) {
			t.Errorf("%s: %s, %v", text, found, err)
		}
	}
}

func TestCentsAreExact(t *testing.T) {
	for cents, text := range map[Cents]string{0: "0.00", 5: "0.05", 4200: "42.00", -150: "-1.50"} {
		if cents.String() != text {
			t.Errorf("%d is %s", cents, cents)
		}
	}
	for price, cents := range map[float64]Cents{0.29: 29, 19.999999: 2000, 1234.5: 123450} {
		if found := book(&pb.Book{Price: price}); found.Price != cents {
			t.Errorf("%v is %d", price, found.Price)
		}
	}
}

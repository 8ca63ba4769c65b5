package quire

import (
	"cmp"
	"context"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	callTimeout     = 5 * time.Second
	purchaseTimeout = 30 * time.Second
	pauseFirst      = 100 * time.Millisecond
	pauseMax        = 2 * time.Second
	// Longer pushbacks than a year are taken for "never".
	pushbackMillisMax = 365 * 24 * 3600 * 1000
)

// What sending a call twice would do.
type kind int

const (
	// It changes nothing.
	read kind = iota
	// A change with a key, which happens once however often it is sent.
	keyed
	// A change that is sent again only if the server did nothing.
	write
)

// The part of an attempt's time that may pass before its connection is ready. Shorter than the attempt, so that an attempt
// whose time is over was sent.
func waiting(share time.Duration) time.Duration { return share / 5 * 4 }

// Makes a call with one answer, as often as its kind allows. The error is an *Error.
func (c *Client) call(ctx context.Context, kind kind, method string, request, answer any) error {
	timeout := callTimeout
	if kind == keyed {
		timeout = purchaseTimeout
	}
	fault := c.retry(ctx, kind, timeout, func(ctx context.Context, end time.Time) *Error {
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		// It stays nil unless the request went to a connection.
		var trailer metadata.MD
		err := c.conn.Invoke(ctx, method, request, answer, grpc.Trailer(&trailer), messageSizes[0], messageSizes[1])
		if err == nil {
			return nil
		}
		return judge(kind, err, trailer, true)
	})
	if fault != nil {
		return c.named(fault)
	}
	return nil
}

// Puts the addresses, and what they did, before the message of a fault that is not a refusal.
func (c *Client) named(fault *Error) *Error {
	switch {
	case fault.Kind == ErrRefused:
	case !fault.Sent:
		fault.Message = c.addresses + " cannot be reached: " + fault.Message
	default:
		fault.Message = c.addresses + " " + cmp.Or(fault.did, "did not answer") + ": " + fault.Message
	}
	return fault
}

// Attempts until one succeeds, the time is over, or another attempt would not be right. A timeout of 0 is none. The attempt gets
// the end of its time.
func (c *Client) retry(
	ctx context.Context, kind kind, timeout time.Duration, attempt func(context.Context, time.Time) *Error,
) *Error {
	now := time.Now()
	deadline, bounded := ctx.Deadline()
	if !bounded && timeout > 0 {
		deadline, bounded = now.Add(timeout), true
	}
	share := callTimeout
	if bounded {
		share = deadline.Sub(now)
	}
	if kind == keyed {
		// A quarter or more, however many retries are allowed.
		share /= time.Duration(min(c.retries, 3) + 1)
	}
	ctx = traced(ctx)
	if c.credential != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, c.credential...)
	}
	// The last attempt that was sent, or the last one if none was; and the last one that may have been carried out.
	var failed, doubt *Error
	for tries, pause := 0, pauseFirst; ; tries, pause = tries+1, min(2*pause, pauseMax) {
		end := now.Add(share)
		if bounded && end.After(deadline) {
			end = deadline
		}
		fault := c.connected(ctx, now, end)
		if fault == nil {
			fault = attempt(ctx, end)
		}
		if fault == nil {
			return nil
		}
		if failed == nil || fault.Sent {
			failed = fault
		}
		if fault.Kind == ErrOutcomeUnknown {
			doubt = fault
		}
		again := tries < c.retries && fault.isPassing(kind)
		if doubt != nil {
			// Once in doubt, only the store's answer settles the purchase: another refusal may not be the first attempt's.
			again = kind == keyed && c.retries > 0
		}
		wait, never := fault.pause(pause)
		now = time.Now()
		if !again || never || bounded && deadline.Sub(now) <= wait {
			break
		}
		if !slept(ctx, wait) {
			if failed.Kind == ErrRefused {
				why := "the call was interrupted, and nothing was done"
				failed = &Error{Kind: ErrUnreachable, Code: codes.DeadlineExceeded, Message: why, Sent: true, did: "was not asked again"}
			}
			break
		}
		now = time.Now()
	}
	if doubt != nil {
		failed = doubt
	}
	if ctx.Err() == context.Canceled && failed.Kind != ErrRefused {
		failed.Code = codes.Canceled
	}
	return failed
}

// Waits until the server has spoken on a connection, so that it is certain if a call was not sent. Returns nil as well if no
// address can be reached: then the attempt fails at once, with the cause.
func (c *Client) connected(ctx context.Context, now, end time.Time) *Error {
	state := c.conn.GetState()
	if state == connectivity.Ready {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, now.Add(waiting(end.Sub(now))))
	defer cancel()
	for hasTried := false; state != connectivity.Ready && state != connectivity.Shutdown; state = c.conn.GetState() {
		switch state {
		case connectivity.Idle:
			c.conn.Connect()
		case connectivity.TransientFailure:
			if hasTried {
				return nil
			}
			c.conn.ResetConnectBackoff()
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return &Error{Kind: ErrUnreachable, Code: codes.Unavailable, Message: "no server answered in time"}
		}
		hasTried = true
	}
	return nil
}

// How an attempt failed. The trailer is nil if it was not sent.
func judge(kind kind, err error, trailer metadata.MD, isUnary bool) *Error {
	said := status.Convert(err)
	fault := &Error{Code: said.Code(), Message: cmp.Or(said.Message(), CodeName(said.Code())), Sent: trailer != nil, cause: err}
	fault.pushback = trailer.Get("grpc-retry-pushback-ms")
	if !fault.Sent {
		fault.Kind, fault.Code = ErrUnreachable, codes.Unavailable
		return fault
	}
	// gRPC has some codes for broken streams as well. A server that refuses a call with one answer sends nothing but trailers,
	// which have the content type. If their status is OK, the answer is missing.
	isBroken := isUnary && (trailer.Get("content-type") == nil || strings.HasPrefix(fault.Message, "cardinality violation"))
	switch {
	case !isUnary:
		fault.did = "ended the stream"
	case !isBroken && said.Message() == "":
		fault.did = "answered"
	case !isBroken:
		fault.did = "answered " + CodeName(fault.Code)
	}
	switch fault.Code {
	case codes.Internal, codes.ResourceExhausted, codes.PermissionDenied, codes.Unimplemented, codes.Unauthenticated:
		if isBroken {
			fault.Code = codes.Unavailable
		}
	}
	if fault.Code > codes.Unauthenticated {
		// gRPC passes on codes beyond the last one that it defines.
		fault.Code = codes.Unknown
	}
	switch fault.Code {
	case codes.Unavailable, codes.Unknown, codes.DeadlineExceeded, codes.Canceled:
		fault.Kind = ErrOutcomeUnknown
		if kind == read {
			fault.Kind = ErrUnreachable
		}
	default:
		fault.Kind = ErrRefused
	}
	return fault
}

// True if another attempt may succeed, while none is in doubt.
func (e *Error) isPassing(kind kind) bool {
	isRead := kind == read && (e.Code == codes.Unavailable || e.Code == codes.Unknown)
	return !e.Sent || e.Code == codes.ResourceExhausted || isRead
}

// The pause before the next attempt, and true if the server forbids another attempt.
func (e *Error) pause(usual time.Duration) (wait time.Duration, never bool) {
	if len(e.pushback) == 0 {
		return time.Duration(float64(usual) * (0.8 + 0.4*rand.Float64())), false
	}
	millis, err := strconv.ParseInt(e.pushback[0], 10, 64)
	return time.Duration(millis) * time.Millisecond, err != nil || millis < 0 || millis > pushbackMillisMax
}

// Sleeps; false if the context ended first.
func slept(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// The messages of a stream; it is opened again, as a read is, until the first one has come, for which it waits `first` at most
// unless that is 0. If it is endless, its end is a fault.
func stream[M any](
	ctx context.Context, c *Client, first time.Duration, isEndless bool,
	open func(context.Context) (grpc.ServerStreamingClient[M], error),
) iter.Seq2[*M, error] {
	return func(yield func(*M, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var messages grpc.ServerStreamingClient[M]
		var message *M
		receive := func() *Error {
			var err error
			message, err = messages.Recv()
			switch {
			case err == io.EOF && isEndless:
				return &Error{Kind: ErrUnreachable, Code: codes.Unavailable, Message: "it should not end", Sent: true, did: "ended the stream"}
			case err == nil || err == io.EOF:
				return nil
			}
			return judge(read, err, messages.Trailer(), false)
		}
		timer := time.AfterFunc(cmp.Or(first, math.MaxInt64), cancel)
		fault := c.retry(ctx, read, 0, func(ctx context.Context, _ time.Time) *Error {
			var err error
			if messages, err = open(ctx); err != nil {
				return judge(read, err, nil, false)
			}
			return receive()
		})
		if !timer.Stop() && fault != nil {
			fault.Code, fault.Message, fault.did = codes.DeadlineExceeded, "time is up", ""
		}
		for ; fault == nil && message != nil; fault = receive() {
			if !yield(message, nil) {
				return
			}
		}
		if fault != nil {
			yield(nil, c.named(fault))
		}
	}
}

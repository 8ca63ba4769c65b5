package quire

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
)

// The kinds of faults, for errors.Is. What the store decides, such as "sold out", is no error.
var (
	// ErrArgument: an argument is wrong. Nothing was sent.
	ErrArgument = errors.New("wrong argument")
	// ErrRefused: the server refused the call.
	ErrRefused = errors.New("refused")
	// ErrUnreachable: nothing was done, or the call changes nothing.
	ErrUnreachable = errors.New("unreachable")
	// ErrOutcomeUnknown: the server may have done a write, which has no key to send it with again.
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// Error is a fault of a call.
type Error struct {
	// Kind is ErrRefused, ErrUnreachable or ErrOutcomeUnknown; errors.Is finds it.
	Kind error
	// Code is the gRPC code; UNAVAILABLE if the connection broke or never was.
	Code codes.Code
	// Message is the server's, or has what went wrong on the way to it; of ErrUnreachable, the address and the cause.
	Message string
	// Sent is false if no attempt found a connection.
	Sent bool
	// What the server did, before the message; empty if it did not answer.
	did string
	// The server's pause before the next attempt: absent, or milliseconds; negative or not a number means never.
	pushback []string
	// What gRPC gave.
	cause error
}

func (e *Error) Error() string {
	return fmt.Sprintf("quire: %v: %s: %s", e.Kind, CodeName(e.Code), e.Message)
}

// Unwrap lets errors.Is find the kind, and the context's error if the time was up or the caller cancelled; errors.As finds gRPC's.
func (e *Error) Unwrap() []error {
	chain := []error{e.Kind}
	switch e.Code {
	case codes.DeadlineExceeded:
		chain = append(chain, context.DeadlineExceeded)
	case codes.Canceled:
		chain = append(chain, context.Canceled)
	}
	if e.cause != nil {
		chain = append(chain, e.cause)
	}
	return chain
}

func argument(format string, values ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrArgument}, values...)...)
}

var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// CodeName is the name of a gRPC code as the gRPC specification has it, such as INVALID_ARGUMENT.
func CodeName(code codes.Code) string {
	if int(code) < len(codeNames) {
		return codeNames[code]
	}
	return "UNKNOWN"
}

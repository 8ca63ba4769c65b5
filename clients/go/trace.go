package quire

import (
	"context"
	"regexp"
	"strings"

	"google.golang.org/grpc/metadata"
)

// Printable ASCII without outer blanks: other fields of metadata end a call.
var sendable = regexp.MustCompile(`^[!-~]([ -~]{0,510}[!-~])?$`)

// Leaves out of the outgoing metadata what cannot be sent of a trace, and a `tracestate` alone.
func traced(ctx context.Context) context.Context {
	fields, _ := metadata.FromOutgoingContext(ctx)
	parent, state := strings.Join(fields.Get("traceparent"), ","), strings.Join(fields.Get("tracestate"), ",")
	if parent == "" && state == "" {
		return ctx
	}
	delete(fields, "traceparent")
	delete(fields, "tracestate")
	if sendable.MatchString(parent) {
		fields.Set("traceparent", parent)
		if sendable.MatchString(state) {
			fields.Set("tracestate", state)
		}
	}
	return metadata.NewOutgoingContext(ctx, fields)
}

package quire

import (
	"context"
	"regexp"
	"strings"

	"google.golang.org/grpc/metadata"
)

// The limits of W3C's Trace Context. A key and a value have as many bytes at most.
const stateBytesMax, stateMembersMax, statePartBytesMax = 512, 32, 256

var (
	parentForm = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$`)
	memberForm = regexp.MustCompile(`^([a-z0-9][a-z0-9_*/@-]*)=([ -+\--<>-~]+)$`)
)

// Leaves a `tracestate` out of the outgoing metadata if receivers would reject it.
func traced(ctx context.Context) context.Context {
	fields, _ := metadata.FromOutgoingContext(ctx)
	parents, states := fields.Get("traceparent"), fields.Get("tracestate")
	if len(states) == 0 || len(parents) == 1 && isParent(parents[0]) && isState(strings.Join(states, ",")) {
		return ctx
	}
	delete(fields, "tracestate")
	return metadata.NewOutgoingContext(ctx, fields)
}

func isParent(text string) bool {
	parts := parentForm.FindStringSubmatch(text)
	if parts == nil {
		return false
	}
	version, trace, span, more := parts[1], parts[2], parts[3], parts[4]
	return version != "ff" && (version != "00" || more == "") && strings.Trim(trace, "0") != "" && strings.Trim(span, "0") != ""
}

func isState(text string) bool {
	members := strings.Split(text, ",")
	if len(text) > stateBytesMax || len(members) > stateMembersMax {
		return false
	}
	for _, member := range members {
		// The metadata of gRPC has no tabs.
		parts := memberForm.FindStringSubmatch(strings.Trim(member, " "))
		if parts == nil || len(parts[1]) > statePartBytesMax || len(parts[2]) > statePartBytesMax {
			return false
		}
	}
	return true
}

package quire

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func sentStates(parent string, states ...string) []string {
	fields := metadata.MD{"tracestate": states}
	if parent != "" {
		fields.Set("traceparent", parent)
	}
	sent, _ := metadata.FromOutgoingContext(traced(metadata.NewOutgoingContext(context.Background(), fields)))
	if !slices.Equal(sent.Get("traceparent"), fields.Get("traceparent")) {
		return []string{"the traceparent has changed"}
	}
	return sent.Get("tracestate")
}

func members(count int) string { return strings.Repeat("a=1,", count-1) + "a=1" }

func twoMembers(bytes int) string {
	first := "a=" + strings.Repeat("1", 254) + ",b="
	return first + strings.Repeat("2", bytes-len(first))
}

func TestAValidTracestateIsSentAsItIs(t *testing.T) {
	for _, state := range []string{
		"rojo=00f067aa0ba902b7", "1t@s=a b!~ , b=c", members(32), twoMembers(512), strings.Repeat("a", 256) + "=1",
	} {
		if sent := sentStates(parent, state); !slices.Equal(sent, []string{state}) {
			t.Errorf("%q is sent as %q", state, sent)
		}
	}
	if sent := sentStates("cc"+parent[2:]+"-more", "a=1", "b=2"); !slices.Equal(sent, []string{"a=1", "b=2"}) {
		t.Errorf("sent %q", sent)
	}
}

func TestAnInvalidTracestateIsLeftOut(t *testing.T) {
	for _, state := range []string{
		"", " ", "a", "a=", "A=1", "=1", "a=b=c", "a=1,b", "a=1,\tb=2", "a=1,", "a=ü", members(33), twoMembers(513),
		"a=" + strings.Repeat("1", 257), strings.Repeat("a", 257) + "=1",
	} {
		if sent := sentStates(parent, state); len(sent) > 0 {
			t.Errorf("%q is sent as %q", state, sent)
		}
	}
}

func TestNoTracestateIsSentWithoutAValidTraceparent(t *testing.T) {
	zeros := strings.Repeat("0", 32)
	for _, parent := range []string{
		"", "ff" + parent[2:], parent + "-more", parent[1:], strings.ToUpper(parent), parent[:3] + zeros + parent[35:],
		parent[:36] + zeros[:16] + parent[52:],
	} {
		if sent := sentStates(parent, "a=1"); len(sent) > 0 {
			t.Errorf("%q beside %q", sent, parent)
		}
	}
}

package quire

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestWhatCanBeSentOfATraceIsSentAsItIs(t *testing.T) {
	long := strings.Repeat("1", 512)
	for _, each := range []struct{ parents, states, sentParents, sentStates []string }{
		{[]string{"p"}, []string{"a=1, b=2"}, []string{"p"}, []string{"a=1, b=2"}},
		{[]string{long}, []string{long}, []string{long}, []string{long}},
		{[]string{"p"}, []string{"a=1", "b=2"}, []string{"p"}, []string{"a=1,b=2"}},
		{[]string{"p"}, []string{long + "1"}, []string{"p"}, nil},
		{[]string{"p"}, []string{" a=1"}, []string{"p"}, nil},
		{[]string{"p"}, []string{"a=1,\tb=2"}, []string{"p"}, nil},
		{[]string{"p "}, []string{"a=1"}, nil, nil},
		{nil, []string{"a=1"}, nil, nil},
	} {
		given := metadata.MD{"traceparent": each.parents, "tracestate": each.states, "other": {"kept"}}
		sent, _ := metadata.FromOutgoingContext(traced(metadata.NewOutgoingContext(context.Background(), given)))
		parents, states := sent.Get("traceparent"), sent.Get("tracestate")
		if !slices.Equal(parents, each.sentParents) || !slices.Equal(states, each.sentStates) || len(sent.Get("other")) != 1 {
			t.Errorf("of %q and %q were sent %q and %q", each.parents, each.states, parents, states)
		}
	}
}

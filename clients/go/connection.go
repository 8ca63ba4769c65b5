package quire

import (
	"cmp"
	"crypto/tls"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// The name of the policy below in a service config.
const policy = "quire_round_robin"

func init() {
	balancer.Register(builder{})
}

// The policy takes turns between the addresses that answer. It differs from gRPC's own in that it shows each attempt to
// connect in the channel's state: a call learns at once that no address can be reached, instead of waiting for its time.
type builder struct{}

func (builder) Name() string { return policy }

func (builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &roundRobin{cc: cc}
}

// gRPC calls its methods and listeners one after the other.
type roundRobin struct {
	// What it does not need: the addresses never change.
	balancer.Balancer
	cc    balancer.ClientConn
	lanes []*lane
}

// One address.
type lane struct {
	conn  balancer.SubConn
	state balancer.SubConnState
}

func (r *roundRobin) UpdateClientConnState(state balancer.ClientConnState) error {
	for _, address := range state.ResolverState.Addresses {
		p := &lane{}
		listener := func(state balancer.SubConnState) { r.changed(p, state) }
		//lint:ignore SA1019 The note is about several addresses; there is no other way to have a connection.
		conn, err := r.cc.NewSubConn([]resolver.Address{address}, balancer.NewSubConnOptions{StateListener: listener})
		if err != nil {
			return err
		}
		p.conn = conn
		r.lanes = append(r.lanes, p)
	}
	r.ExitIdle()
	return nil
}

func (r *roundRobin) changed(p *lane, state balancer.SubConnState) {
	p.state = state
	switch state.ConnectivityState {
	case connectivity.Shutdown:
		return
	case connectivity.Idle:
		p.conn.Connect()
	}
	var ready ring
	connecting := false
	for _, p := range r.lanes {
		switch p.state.ConnectivityState {
		case connectivity.Ready:
			ready.conns = append(ready.conns, p.conn)
		case connectivity.Connecting, connectivity.Idle:
			connecting = true
		}
	}
	switch {
	case len(ready.conns) > 0:
		r.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: &ready})
	case connecting:
		waiting := base.NewErrPicker(balancer.ErrNoSubConnAvailable)
		r.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Connecting, Picker: waiting})
	default:
		failing := base.NewErrPicker(unconnected{state.ConnectionError})
		r.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: failing})
	}
}

// The cause of a failure to connect. It has a status, so that gRPC ends a call with it as it is, and not with its text alone.
type unconnected struct{ cause error }

func (u unconnected) Error() string {
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](u.cause); ok {
		return "the server's certificate is not trusted: " + untrusted.Err.Error()
	}
	// gRPC has put the error of the network or of TLS into one of its own.
	return cmp.Or(errors.Unwrap(u.cause), u.cause).Error()
}

func (u unconnected) Unwrap() error { return u.cause }

func (u unconnected) GRPCStatus() *status.Status { return status.New(codes.Unavailable, u.Error()) }

func (r *roundRobin) ExitIdle() {
	for _, p := range r.lanes {
		p.conn.Connect()
	}
}

func (r *roundRobin) Close() {
	for _, p := range r.lanes {
		p.conn.Shutdown()
	}
}

// The connections that are ready.
type ring struct {
	conns []balancer.SubConn
	next  atomic.Uint32
}

func (r *ring) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: r.conns[int(r.next.Add(1)-1)%len(r.conns)]}, nil
}

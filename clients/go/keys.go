package quire

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "quire.example/quire/internal/wire/kv"
)

// Entry is a key's entry as it was when it was read.
type Entry struct {
	Key   string
	Value []byte
	// Version is a number that no other write of the store has.
	Version uint64
	// ExpiresIn is the time left; 0 if the entry does not expire.
	ExpiresIn time.Duration
	// ValueLeftOut is true if the value is too large for a page of a scan; Get has it.
	ValueLeftOut bool
}

// WriteOutcome is what became of a write.
type WriteOutcome string

const (
	// Written: it was made; of a deletion: there was an entry.
	Written WriteOutcome = "written"
	// Exists: Create found an entry.
	Exists WriteOutcome = "exists"
	// NoSuchKey: Update or Delete found no entry.
	NoSuchKey WriteOutcome = "no_such_key"
	// AnotherVersion: the entry has another version than the one expected.
	AnotherVersion WriteOutcome = "another_version"
)

// Write is the answer to a write.
type Write struct {
	Outcome WriteOutcome
	// Version is that of the new entry; 0 if nothing was written, and of a deletion.
	Version uint64
}

// EventKind is the kind of an event of a watch.
type EventKind string

const (
	// Started: the watch has begun; every change after this is an event.
	Started EventKind = "started"
	Put     EventKind = "put"
	Deleted EventKind = "deleted"
	Expired EventKind = "expired"
	// UnknownEvent: the server knows more kinds than this client.
	UnknownEvent EventKind = "unknown"
)

// Event is a change that a watch reports.
type Event struct {
	Kind EventKind
	Key  string
	// Value is the new one, if the kind is Put.
	Value   []byte
	Version uint64
	// ValueLeftOut is true if the value is too large for an event; Get has it.
	ValueLeftOut bool
}

type writeOptions struct {
	ttl      time.Duration
	expected *uint64
}

// WriteOption changes a write.
type WriteOption func(*writeOptions)

// TTL lets the entry expire after a time, which is rounded up to milliseconds; never if absent or 0.
func TTL(ttl time.Duration) WriteOption { return func(o *writeOptions) { o.ttl = ttl } }

// ExpectedVersion makes an update or a deletion only if the entry has that version.
func ExpectedVersion(version uint64) WriteOption {
	return func(o *writeOptions) { o.expected = &version }
}

// Create makes an entry; the outcome is Exists if the key has one.
func (c *Client) Create(ctx context.Context, key string, value []byte, opts ...WriteOption) (Write, error) {
	request := &pb.CreateRequest{Key: []byte(key), Value: value, WantDetails: true}
	return c.write(ctx, pb.KeyValueService_Create_FullMethodName, request, new(pb.CreateResponse), &request.TimeToLiveMs, nil, opts)
}

// Put makes an entry or replaces its value.
func (c *Client) Put(ctx context.Context, key string, value []byte, opts ...WriteOption) (Write, error) {
	request := &pb.PutRequest{Key: []byte(key), Value: value}
	return c.write(ctx, pb.KeyRangeService_Put_FullMethodName, request, new(pb.PutResponse), &request.TimeToLiveMs, nil, opts)
}

// Update replaces a value; the outcome is NoSuchKey if the key has none.
func (c *Client) Update(ctx context.Context, key string, value []byte, opts ...WriteOption) (Write, error) {
	r := &pb.UpdateRequest{Key: []byte(key), Value: value, WantDetails: true}
	method := pb.KeyValueService_Update_FullMethodName
	return c.write(ctx, method, r, new(pb.UpdateResponse), &r.TimeToLiveMs, &r.ExpectedVersion, opts)
}

// Delete removes an entry; the outcome is NoSuchKey if the key had none.
func (c *Client) Delete(ctx context.Context, key string, opts ...WriteOption) (Write, error) {
	request := &pb.DeleteRequest{Key: []byte(key), WantDetails: true}
	method := pb.KeyValueService_Delete_FullMethodName
	return c.write(ctx, method, request, new(pb.DeleteResponse), nil, &request.ExpectedVersion, opts)
}

// Makes a write. The options go to the fields of the request that have them; what the store decides is no error.
func (c *Client) write(
	ctx context.Context, method string, request, reply any, ttl *uint64, expected **uint64, opts []WriteOption,
) (Write, error) {
	var o writeOptions
	for _, option := range opts {
		option(&o)
	}
	if o.ttl < 0 || o.ttl > 0 && ttl == nil || o.expected != nil && expected == nil {
		return Write{}, argument("a deletion takes no time to live, none is negative, and only updates and deletions expect a version")
	}
	if ttl != nil {
		*ttl = uint64((o.ttl + time.Millisecond - 1) / time.Millisecond)
	}
	if expected != nil {
		*expected = o.expected
	}
	err := c.call(ctx, write, method, request, reply)
	if fault, ok := err.(*Error); ok {
		outcome, ok := map[codes.Code]WriteOutcome{
			codes.AlreadyExists: Exists, codes.NotFound: NoSuchKey, codes.Aborted: AnotherVersion,
		}[fault.Code]
		if !ok {
			return Write{}, err
		}
		return Write{Outcome: outcome}, nil
	}
	switch reply := reply.(type) {
	case *pb.DeleteResponse:
		if !reply.Deleted {
			return Write{Outcome: NoSuchKey}, nil
		}
	case interface{ GetVersion() uint64 }:
		return Write{Outcome: Written, Version: reply.GetVersion()}, nil
	}
	return Write{Outcome: Written}, nil
}

// Retrieve is another name of Get.
func (c *Client) Retrieve(ctx context.Context, key string) (Entry, bool, error) {
	return c.Get(ctx, key)
}

// Get returns the entry of a key, or false if it has none.
func (c *Client) Get(ctx context.Context, key string) (Entry, bool, error) {
	reply := new(pb.RetrieveResponse)
	request := &pb.RetrieveRequest{Key: []byte(key), WantDetails: true}
	err := c.call(ctx, read, pb.KeyValueService_Retrieve_FullMethodName, request, reply)
	if fault, ok := err.(*Error); ok && fault.Code == codes.NotFound {
		return Entry{}, false, nil
	}
	entry := Entry{Key: key, Value: reply.Value, Version: reply.Version, ExpiresIn: millis(reply.GetTimeToLiveMs())}
	return entry, err == nil, err
}

// Scan returns the entries of all keys with a prefix, in the order of their bytes, without values if keysOnly. Each entry is as
// it was when it was read. Each page has the deadline of a call of its own.
func (c *Client) Scan(ctx context.Context, prefix string, keysOnly bool) iter.Seq2[Entry, error] {
	request := &pb.ScanRequest{Prefix: []byte(prefix), KeysOnly: keysOnly}
	return func(yield func(Entry, error) bool) {
		for request.StartAfter = nil; ; {
			reply := new(pb.ScanResponse)
			if err := c.call(ctx, read, pb.KeyRangeService_Scan_FullMethodName, request, reply); err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range reply.Entries {
				entry := Entry{string(e.Key), e.Value, e.Version, millis(e.GetTimeToLiveMs()), e.ValueLeftOut}
				if !yield(entry, nil) {
					return
				}
			}
			if request.StartAfter = reply.NextStartAfter; request.StartAfter == nil {
				return
			}
		}
	}
}

// Watch returns every change to keys with a prefix, from the first event on, which is Started. An error ends it; to miss
// nothing then, watch again and scan once that has started.
func (c *Client) Watch(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	request := &pb.WatchRequest{Prefix: []byte(prefix)}
	events := stream(ctx, c, callTimeout, true, func(ctx context.Context) (grpc.ServerStreamingClient[pb.WatchEvent], error) {
		return pb.NewKeyRangeServiceClient(c.conn).Watch(ctx, request, messageSizes...)
	})
	kinds := [...]EventKind{UnknownEvent, Started, Put, Deleted, Expired}
	return func(yield func(Event, error) bool) {
		for e, err := range events {
			event := Event{UnknownEvent, string(e.GetKey()), e.GetValue(), e.GetVersion(), e.GetValueLeftOut()}
			if at := int(e.GetKind()); at < len(kinds) {
				event.Kind = kinds[at]
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

func millis(count uint64) time.Duration {
	return time.Duration(min(count, uint64(1<<63-1)/uint64(time.Millisecond))) * time.Millisecond
}

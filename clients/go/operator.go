package quire

import (
	"context"
	"iter"
	"strings"
	"time"

	"google.golang.org/grpc"

	pb "quire.example/quire/internal/wire/bookstore"
)

// Operator makes the calls of those who run the store.
type Operator struct{ client Client }

// LogEntry is an entry of the store's log.
type LogEntry struct {
	// Number is 1, 2, 3 … in the order of commits.
	Number int64
	Time   time.Time
	// Kind is that of bookstore.LogEntryKind without its prefix, such as PURCHASE.
	Kind   string
	BookID int32
	// Quantity is how many copies a purchase asked for; nil for other kinds.
	Quantity *int32
	// Before and After are copies, or cents for a change of price; nil if there was no such book.
	Before, After *int64
	// Key is that of a purchase; empty if it had none.
	Key string
}

// Operator returns the operator's calls with their token, on the connections of this client.
func (c *Client) Operator(token string) (*Operator, error) {
	credential, err := bearer(token)
	if err != nil {
		return nil, err
	}
	if credential == nil {
		return nil, argument("the operator's token is empty")
	}
	return &Operator{client: Client{conn: c.conn, addresses: c.addresses, retries: c.retries, credential: credential}}, nil
}

// List returns every book in the order of ids.
func (o *Operator) List(ctx context.Context) iter.Seq2[Book, error] {
	return paged(func(next string) ([]Book, string, error) {
		reply := new(pb.ListReply)
		err := o.client.call(ctx, read, pb.Admin_List_FullMethodName, &pb.ListRequest{PageToken: next}, reply)
		return books(reply.Books), reply.NextPageToken, err
	})
}

// Restock raises every book that has fewer copies than amount to it, and returns how many those were. With 0 the amount is the
// server's default.
func (o *Operator) Restock(ctx context.Context, amount int32) (int64, error) {
	request, reply := new(pb.RestockRequest), new(pb.RestockReply)
	if amount != 0 {
		request.Amount = &amount
	}
	err := o.client.call(ctx, write, pb.Admin_Restock_FullMethodName, request, reply)
	return reply.BooksRaised, err
}

// PriceChange is a book's price before and after.
type PriceChange struct{ Before, After Cents }

// UpdatePrice sets the price of a book; false if there is no such book.
func (o *Operator) UpdatePrice(ctx context.Context, id int32, price Cents) (PriceChange, bool, error) {
	if err := checkID(id); err != nil {
		return PriceChange{}, false, err
	}
	reply := new(pb.UpdatePriceReply)
	request := &pb.UpdatePriceRequest{Id: id, PriceCents: (*int64)(&price)}
	err := o.client.call(ctx, write, pb.Admin_UpdatePrice_FullMethodName, request, reply)
	return PriceChange{Cents(reply.PriceCentsBefore), Cents(reply.PriceCentsAfter)}, reply.Success, err
}

// Log returns the store's log, newest first.
func (o *Operator) Log(ctx context.Context) iter.Seq2[LogEntry, error] {
	return paged(func(next string) ([]LogEntry, string, error) {
		reply := new(pb.LogReply)
		err := o.client.call(ctx, read, pb.Admin_Log_FullMethodName, &pb.LogRequest{PageToken: next}, reply)
		entries := make([]LogEntry, 0, len(reply.Entries))
		for _, entry := range reply.Entries {
			entries = append(entries, logEntry(entry))
		}
		return entries, reply.NextPageToken, err
	})
}

// TailLog returns the entries of the log after a number as they come, oldest first; from now on if it is negative. It lasts until
// its context ends or the server stops, which is an error.
func (o *Operator) TailLog(ctx context.Context, after int64) iter.Seq2[LogEntry, error] {
	request := new(pb.TailLogRequest)
	if after >= 0 {
		request.AfterNumber = &after
	}
	c := &o.client
	entries := stream(ctx, c, 0, true, func(ctx context.Context) (grpc.ServerStreamingClient[pb.LogEntry], error) {
		return pb.NewAdminClient(c.conn).TailLog(ctx, request, messageSizes...)
	})
	return func(yield func(LogEntry, error) bool) {
		for entry, err := range entries {
			if !yield(logEntry(entry), err) {
				return
			}
		}
	}
}

func logEntry(e *pb.LogEntry) LogEntry {
	if e == nil {
		return LogEntry{}
	}
	kind := strings.TrimPrefix(e.Kind.String(), "LOG_ENTRY_KIND_")
	return LogEntry{
		Number: e.Number, Time: time.UnixMilli(e.TimeMs), Kind: kind, BookID: e.BookId, Quantity: e.Quantity,
		Before: e.Before, After: e.After, Key: string(e.IdempotencyKey),
	}
}

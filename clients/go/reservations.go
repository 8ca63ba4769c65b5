package quire

import (
	"context"
	"strings"
	"time"

	pb "quire.example/quire/internal/wire/bookstore"
)

// Receipt is a proof that the store's log has a purchase.
type Receipt struct {
	// Text is of the form c2sp.org/tlog-proof@v1.
	Text string
	// LogKey is the log's public key. It proves something only if the reader has it from elsewhere as well.
	LogKey string
}

// Reservation is the answer to [Client.Reserve], [Client.Confirm] and [Client.Release].
type Reservation struct {
	// Outcome is the reservation's state after the call, or why there is none.
	Outcome Outcome
	// Success is true if the call did what it is for, now or when it was sent first.
	Success bool
	// Message is the server's.
	Message string
	// Key names the reservation: sent again with it, each call does its part once.
	Key string
	// Replayed is true if an earlier call with the key led to this outcome, or the end of the time.
	Replayed bool
	// ID and Quantity are the book and the copies; 0 if there is no reservation with the key.
	ID, Quantity int32
	// Number is that of the log's entry; 0 if there is none. Of what is bought it is the purchase's.
	Number int64
	// StockLeft is the number of copies left after it; nil if the server does not send it.
	StockLeft *int32
	// Until is when the copies are given back by themselves; zero if there is no reservation.
	Until time.Time
	// Cause is the last fault of a call whose outcome is unknown.
	Cause *Error
}

// Receipt returns the receipt of a purchase that was made with the key; false if there is no such purchase.
func (c *Client) Receipt(ctx context.Context, number int64, key string) (Receipt, bool, error) {
	if number < 1 {
		return Receipt{}, false, argument("number is %d; it must be a whole number from 1", number)
	}
	if err := checkKey(key); err != nil {
		return Receipt{}, false, err
	}
	request, reply := &pb.ReceiptRequest{Number: number, IdempotencyKey: []byte(key)}, new(pb.ReceiptReply)
	err := c.call(ctx, read, pb.BookStore_Receipt_FullMethodName, request, reply)
	return Receipt{Text: reply.Receipt, LogKey: reply.LogKey}, reply.Success, err
}

// Reserve holds a copy of a book, or as many as the options set, until it is confirmed or released, or its time is over.
// With an error nothing is held; the key is there all the same.
func (c *Client) Reserve(ctx context.Context, id int32, opts ...BuyOption) (Reservation, error) {
	o, err := optionsOf(id, opts)
	if err != nil {
		return Reservation{}, err
	}
	request := &pb.ReserveRequest{Id: id, Quantity: &o.quantity, IdempotencyKey: []byte(*o.key), Seconds: o.seconds}
	return c.reservation(ctx, pb.BookStore_Reserve_FullMethodName, *o.key, request)
}

// Confirm buys what a reservation holds, at the price of now.
func (c *Client) Confirm(ctx context.Context, key string) (Reservation, error) {
	request := &pb.ReservationRequest{IdempotencyKey: []byte(key)}
	return c.reservation(ctx, pb.BookStore_Confirm_FullMethodName, key, request)
}

// Release gives back what a reservation holds.
func (c *Client) Release(ctx context.Context, key string) (Reservation, error) {
	request := &pb.ReservationRequest{IdempotencyKey: []byte(key)}
	return c.reservation(ctx, pb.BookStore_Release_FullMethodName, key, request)
}

func (c *Client) reservation(ctx context.Context, method, key string, request any) (Reservation, error) {
	if err := checkKey(key); err != nil {
		return Reservation{}, err
	}
	var reply pb.ReservationReply
	doubt, err := c.once(ctx, method, request, &reply)
	switch {
	case err != nil:
		return Reservation{Key: key}, err
	case doubt != nil:
		return Reservation{Outcome: Unknown, Key: key, Message: doubt.Message, Cause: doubt}, nil
	}
	reserved := Reservation{
		Outcome: Unspecified, Success: reply.Success, Message: reply.Message, Key: key, Replayed: reply.Replayed,
		ID: reply.Id, Quantity: reply.Quantity, Number: reply.Number, StockLeft: reply.StockLeft,
	}
	if name, ok := pb.ReservationOutcome_name[int32(reply.Outcome)]; ok {
		reserved.Outcome = Outcome(strings.ToLower(strings.TrimPrefix(name, "RESERVATION_OUTCOME_")))
	}
	if reply.UntilMs != 0 {
		reserved.Until = time.UnixMilli(reply.UntilMs)
	}
	return reserved, nil
}

package quire

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "quire.example/quire/internal/wire/bookstore"
)

// Cents is an amount of money.
type Cents int64

func (c Cents) String() string {
	sign, amount := "", uint64(c)
	if c < 0 {
		sign, amount = "-", -amount
	}
	return fmt.Sprintf("%s%d.%02d", sign, amount/100, amount%100)
}

// Book is a book as the store had it when it answered.
type Book struct {
	// Held is the number of copies that reservations hold.
	Held  int32 `json:"held"`
	ID    int32 `json:"id"`
	Price Cents `json:"price_cents"`
	// Stock is the number of copies that can be bought.
	Stock int32  `json:"stock"`
	Title string `json:"title"`
	Topic string `json:"topic"`
}

// Found is the answer to a lookup.
type Found struct {
	// Book is nil if there is no such book.
	Book *Book
	// Message is the server's, as the reason why there is no book.
	Message string
}

// Topic is a topic with the number of its books.
type Topic struct {
	Books int64  `json:"books"`
	Name  string `json:"name"`
}

// Outcome is what became of a purchase or a reservation.
type Outcome string

const (
	Bought  Outcome = "bought"
	SoldOut Outcome = "sold_out"
	// TooFew: some copies are left, but fewer than were asked for, and none was bought.
	TooFew     Outcome = "too_few"
	NoSuchBook Outcome = "no_such_book"
	// Held: copies are reserved, and not in the stock any more.
	Held Outcome = "held"
	// Released: a reservation was given back.
	Released Outcome = "released"
	// HoldExpired: the time of a reservation is over, and the copies were given back.
	HoldExpired       Outcome = "expired"
	NoSuchReservation Outcome = "no_such_reservation"
	// Unknown: it may have been made. Sending it again later with its key settles it.
	Unknown Outcome = "unknown"
	// NotBought has no known reason; the message may have one.
	NotBought Outcome = "not_bought"
	// Unspecified: a state of a reservation that this library does not know.
	Unspecified Outcome = "unspecified"
)

// Purchase is the answer to a purchase.
type Purchase struct {
	Outcome Outcome
	// Key names the purchase: sent again with it, it is made once at most.
	Key string
	// Replayed is true if the answer is that to an earlier request with the key.
	Replayed bool
	// Number is that of the purchase in the store's log; 0 if nothing was bought or the server does not send it.
	Number int64
	// StockLeft is the number of copies left after it; nil if the server does not send it.
	StockLeft *int32
	// Message is the server's.
	Message string
	// Cause is the last fault of a purchase whose outcome is unknown.
	Cause *Error
}

type purchaseOptions struct {
	quantity int32
	key      *string
	seconds  *int32
}

// BuyOption changes a purchase or a reservation.
type BuyOption func(*purchaseOptions)

// Quantity is how many copies are bought or reserved, all or none; 1 if absent.
func Quantity(copies int32) BuyOption { return func(o *purchaseOptions) { o.quantity = copies } }

// Key names the purchase or the reservation with 1 to 64 bytes; random if absent.
func Key(key string) BuyOption { return func(o *purchaseOptions) { o.key = &key } }

// Seconds is how long a reservation is held; 900 if absent. A purchase has none.
func Seconds(seconds int32) BuyOption { return func(o *purchaseOptions) { o.seconds = &seconds } }

// RandomKey makes a key of 32 hexadecimal digits for a purchase.
func RandomKey() string {
	var key [16]byte
	// It never fails.
	_, _ = rand.Read(key[:])
	return hex.EncodeToString(key[:])
}

// Ping returns the server's greeting.
func (c *Client) Ping(ctx context.Context) (string, error) {
	reply := new(pb.HelloReply)
	err := c.call(ctx, read, pb.BookStore_Hello_FullMethodName, &pb.HelloRequest{Name: "quire client"}, reply)
	return reply.HelloMessage, err
}

// Search returns the books of a topic in the order of their ids. The server sends pageSize of them at a time; 0 leaves that to it.
// The deadline is that of the whole iteration.
func (c *Client) Search(ctx context.Context, topic string, pageSize int32) iter.Seq2[Book, error] {
	return func(yield func(Book, error) bool) {
		if !utf8.ValidString(topic) || pageSize < 0 {
			yield(Book{}, argument("the topic is %q, by %d books; it must be UTF-8, by 0 or more", topic, pageSize))
			return
		}
		if _, bounded := ctx.Deadline(); !bounded {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, callTimeout)
			defer cancel()
		}
		request := &pb.BookTopicRequest{Topic: topic, PageSize: pageSize}
		for reply, err := range stream(ctx, c, 0, false, func(ctx context.Context) (grpc.ServerStreamingClient[pb.BookListReply], error) {
			return pb.NewBookStoreClient(c.conn).SearchStream(ctx, request, messageSizes...)
		}) {
			if fault, ok := err.(*Error); ok && fault.Code == codes.Unimplemented {
				// A server that knows no streams.
				paged(func(next string) ([]Book, string, error) {
					request.PageToken = next
					reply := new(pb.BookListReply)
					err := c.call(ctx, read, pb.BookStore_Search_FullMethodName, request, reply)
					return books(reply.Books), reply.NextPageToken, err
				})(yield)
				return
			}
			if err != nil {
				yield(Book{}, err)
				return
			}
			for _, each := range reply.Books {
				if !yield(book(each), nil) {
					return
				}
			}
		}
	}
}

// Topics returns the topics in the order of their bytes, or those near a text, best first, if it is not empty.
func (c *Client) Topics(ctx context.Context, near string) iter.Seq2[Topic, error] {
	return paged(func(next string) ([]Topic, string, error) {
		if !utf8.ValidString(near) {
			return nil, "", argument("the text is %q; it must be UTF-8", near)
		}
		reply := new(pb.ListTopicsReply)
		request := &pb.ListTopicsRequest{Near: near, PageToken: next}
		err := c.call(ctx, read, pb.BookStore_ListTopics_FullMethodName, request, reply)
		topics := make([]Topic, 0, len(reply.Topics))
		for _, topic := range reply.Topics {
			topics = append(topics, Topic{Name: topic.Name, Books: topic.Books})
		}
		return topics, reply.NextPageToken, err
	})
}

// Lookup returns a book by its id.
func (c *Client) Lookup(ctx context.Context, id int32) (Found, error) {
	if err := checkID(id); err != nil {
		return Found{}, err
	}
	var reply pb.BookInfoReply
	err := c.call(ctx, read, pb.BookStore_Lookup_FullMethodName, &pb.ItemNumberRequest{Id: id}, &reply)
	if err != nil || reply.Book == nil {
		return Found{Message: reply.Message}, err
	}
	found := book(reply.Book)
	return Found{Book: &found, Message: reply.Message}, nil
}

// Buy buys a copy of a book, or as many as the options set. With an error nothing was bought; the key is there all the same.
func (c *Client) Buy(ctx context.Context, id int32, opts ...BuyOption) (Purchase, error) {
	o, err := optionsOf(id, opts)
	if err != nil {
		return Purchase{}, err
	}
	request := &pb.ItemNumberRequest{Id: id, Quantity: &o.quantity, IdempotencyKey: []byte(*o.key)}
	var reply pb.BuyBookReply
	doubt, err := c.once(ctx, pb.BookStore_Buy_FullMethodName, request, &reply)
	switch {
	case err != nil:
		return Purchase{Key: *o.key}, err
	case doubt != nil:
		return Purchase{Outcome: Unknown, Key: *o.key, Message: doubt.Message, Cause: doubt}, nil
	}
	bought := Purchase{
		Outcome: outcome(&reply), Key: *o.key, Replayed: reply.Replayed, StockLeft: reply.StockLeft, Message: reply.Message,
	}
	if reply.Success {
		bought.Number = reply.PurchaseNumber
	}
	return bought, nil
}

func optionsOf(id int32, opts []BuyOption) (purchaseOptions, error) {
	o := purchaseOptions{quantity: 1}
	for _, option := range opts {
		option(&o)
	}
	if o.key == nil {
		o.key = new(RandomKey())
	}
	if id < 1 || o.quantity < 1 || o.seconds != nil && *o.seconds < 1 {
		return o, argument("id, quantity or seconds are below 1; they must be whole numbers from 1")
	}
	return o, checkKey(*o.key)
}

// Makes a call that has a key. The fault of one that is in doubt is no error.
func (c *Client) once(ctx context.Context, method string, request, reply any) (doubt *Error, err error) {
	err = c.call(ctx, keyed, method, request, reply)
	if fault, ok := err.(*Error); ok && fault.Kind == ErrOutcomeUnknown {
		return fault, nil
	}
	return nil, err
}

// Success decides, as every server sets it; the reply's outcome is the reason if nothing was bought.
func outcome(reply *pb.BuyBookReply) Outcome {
	if reply.Success {
		return Bought
	}
	reasons := map[pb.BuyOutcome]Outcome{
		pb.BuyOutcome_BUY_OUTCOME_SOLD_OUT: SoldOut, pb.BuyOutcome_BUY_OUTCOME_TOO_FEW: TooFew,
		pb.BuyOutcome_BUY_OUTCOME_NO_SUCH_BOOK: NoSuchBook,
	}
	return cmp.Or(reasons[reply.Outcome], NotBought)
}

func checkID(id int32) error {
	if id < 1 {
		return argument("id is %d; it must be a whole number from 1", id)
	}
	return nil
}

func checkKey(key string) error {
	if len(key) < 1 || len(key) > 64 {
		return argument("the key has %d bytes; it must have 1 to 64", len(key))
	}
	return nil
}

func books(found []*pb.Book) []Book {
	books := make([]Book, 0, len(found))
	for _, each := range found {
		books = append(books, book(each))
	}
	return books
}

func book(found *pb.Book) Book {
	price := found.PriceCents
	// A server that knows no cents sends the fraction alone.
	if cents := math.Round(found.Price * 100); price == 0 && math.Abs(cents) < 1<<53 {
		price = int64(cents)
	}
	return Book{ID: found.Id, Title: found.Title, Topic: found.Topic, Stock: found.Stock, Held: found.Held, Price: Cents(price)}
}

// The items of all pages; an error ends them.
func paged[T any](page func(next string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for next := ""; ; {
			items, following, err := page(next)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if following == "" {
				return
			}
			next = following
		}
	}
}

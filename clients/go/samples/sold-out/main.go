// Buys all copies of a book, and shows every outcome of a purchase.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"quire.example/quire"
)

func main() {
	address := "127.0.0.1:10086"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	client, err := quire.New(address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := buyAll(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func buyAll(ctx context.Context, client *quire.Client) error {
	if _, err := buy(ctx, client, 1); err != nil {
		return err
	}
	// As many as one purchase may have.
	left, err := buy(ctx, client, 1000)
	if err != nil {
		return err
	}
	for _, copies := range []int32{left, 1} {
		if _, err := buy(ctx, client, copies); err != nil {
			return err
		}
	}
	return nil
}

// Buys copies and returns how many are left.
func buy(ctx context.Context, client *quire.Client, copies int32) (left int32, err error) {
	purchase, err := client.Buy(ctx, 12498, quire.Quantity(copies))
	if err != nil {
		return 0, err
	}
	if purchase.StockLeft != nil {
		left = *purchase.StockLeft
	}
	switch purchase.Outcome {
	case quire.Bought:
		fmt.Printf("bought: %d left\n", left)
	case quire.TooFew:
		fmt.Printf("too few: %d left\n", left)
	case quire.SoldOut:
		fmt.Println("sold out")
	case quire.NoSuchBook:
		fmt.Println("no such book")
	case quire.NotBought:
		fmt.Println("not bought:", purchase.Message)
	case quire.Unknown:
		fmt.Printf("unknown: ask again with the key %s\n", purchase.Key)
	}
	return left, nil
}

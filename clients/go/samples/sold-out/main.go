// Buys all copies of a book, and shows every outcome of a purchase.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"quire"
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
	left, err := buy(ctx, client, 1)
	if err != nil {
		return err
	}
	// 1000 is as many as a purchase may have.
	if left, err = buy(ctx, client, 1000); err != nil || left == 0 {
		return err
	}
	if left, err = buy(ctx, client, left); err != nil || left > 0 {
		return err
	}
	_, err = buy(ctx, client, 1)
	return err
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
	case quire.Unknown:
		fmt.Printf("unknown: ask again with the key %s\n", purchase.Key)
	}
	return left, nil
}

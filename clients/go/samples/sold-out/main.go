// Buys all copies of a book, and shows every outcome of a purchase.
package main

import (
	"context"
	"errors"
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
	found, err := client.Lookup(ctx, 12498)
	if err != nil || found.Book == nil {
		return errors.Join(err, errors.New(found.Message))
	}
	stock := found.Book.Stock
	for _, copies := range []int32{stock + 1, stock, 1} {
		if err := buy(ctx, client, 12498, copies); err != nil {
			return err
		}
	}
	return nil
}

func buy(ctx context.Context, client *quire.Client, id, copies int32) error {
	purchase, err := client.Buy(ctx, id, quire.Quantity(copies))
	if err != nil {
		return err
	}
	switch purchase.Outcome {
	case quire.Bought:
		fmt.Printf("bought: %d left\n", *purchase.StockLeft)
	case quire.TooFew:
		fmt.Printf("too few: %d left\n", *purchase.StockLeft)
	case quire.SoldOut:
		fmt.Println("sold out")
	case quire.NoSuchBook:
		fmt.Println("no such book")
	case quire.Unknown:
		fmt.Printf("unknown: ask again with the key %s\n", purchase.Key)
	}
	return nil
}

// Buys a book.
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
	if err := buy(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func buy(ctx context.Context, client *quire.Client) error {
	purchase, err := client.Buy(ctx, 53573)
	if err != nil {
		return err
	}
	switch purchase.Outcome {
	case quire.Bought:
		fmt.Printf("bought: purchase %d, %d left\n", purchase.Number, *purchase.StockLeft)
	case quire.Unknown:
		fmt.Printf("unknown: ask again with the key %s\n", purchase.Key)
	default:
		fmt.Println(purchase.Message)
	}
	return nil
}

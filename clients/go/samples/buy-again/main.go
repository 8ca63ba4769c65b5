// Sends a purchase twice and makes it once.
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
	if err := buyTwice(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func buyTwice(ctx context.Context, client *quire.Client) error {
	// A key that is kept before the purchase is sent settles it even after a crash of this program.
	key := quire.RandomKey()
	for range 2 {
		purchase, err := client.Buy(ctx, 12365, quire.Key(key))
		if err != nil {
			return err
		}
		if purchase.Outcome != quire.Bought {
			return fmt.Errorf("not bought: %s", purchase.Message)
		}
		state := "new"
		if purchase.Replayed {
			state = "replayed"
		}
		fmt.Printf("purchase %d, %s\n", purchase.Number, state)
	}
	return nil
}

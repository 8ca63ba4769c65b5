// Reserves a copy and buys it; then reserves another, and comes too late.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

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
	if err := reserve(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func reserve(ctx context.Context, client *quire.Client) error {
	held, err := client.Reserve(ctx, 53477, quire.Seconds(60))
	if err != nil {
		return err
	}
	if held.Outcome != quire.Held {
		return fmt.Errorf("not held: %s", held.Message)
	}
	fmt.Printf("held: %d left\n", *held.StockLeft)
	bought, err := client.Confirm(ctx, held.Key)
	if err != nil {
		return err
	}
	fmt.Printf("bought: purchase %d\n", bought.Number)

	brief, err := client.Reserve(ctx, 53477, quire.Seconds(1))
	if err != nil {
		return err
	}
	time.Sleep(1100 * time.Millisecond)
	late, err := client.Confirm(ctx, brief.Key)
	if err != nil {
		return err
	}
	if late.Outcome == quire.HoldExpired {
		fmt.Printf("too late: %d left\n", *late.StockLeft)
	}
	return nil
}

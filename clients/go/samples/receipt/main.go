// Keeps the receipt of a purchase, with which anyone can verify it without the server.
package main

import (
	"context"
	"errors"
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
	if err := keep(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func keep(ctx context.Context, client *quire.Client) error {
	purchase, err := client.Buy(ctx, 53573)
	if err != nil {
		return err
	}
	receipt, ok, err := client.Receipt(ctx, purchase.Number, purchase.Key)
	if !ok {
		return errors.Join(errors.New("there is no receipt"), err)
	}
	// The key proves little if it comes from the same server as the receipt; the shop publishes it elsewhere as well.
	for name, text := range map[string]string{"my.tlog-proof": receipt.Text, "log-key": receipt.LogKey + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("kept: purchase %d\nverify it: quire receipt my.tlog-proof --key log-key\n", purchase.Number)
	return nil
}

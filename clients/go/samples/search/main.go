// Prints the books of a topic.
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
	if err := search(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func search(ctx context.Context, client *quire.Client) error {
	for book, err := range client.Search(ctx, "distributed systems", 0) {
		if err != nil {
			return err
		}
		fmt.Printf("%d %s: %d at %s\n", book.ID, book.Title, book.Stock, book.Price)
	}
	return nil
}

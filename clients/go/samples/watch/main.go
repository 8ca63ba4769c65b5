// Watches a key and changes it.
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
	if err := watch(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func watch(ctx context.Context, client *quire.Client) error {
	for event, err := range client.Watch(ctx, "greeting") {
		if err != nil {
			return err
		}
		switch event.Kind {
		case quire.Started:
			fmt.Println("watching")
			// From here on no change is missed.
			if _, err := client.Put(ctx, "greeting", []byte("hello")); err != nil {
				return err
			}
		case quire.Put:
			fmt.Printf("put %s = %s\n", event.Key, event.Value)
			return nil
		}
	}
	return nil
}

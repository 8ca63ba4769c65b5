// Updates a value only if no one else has.
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
	if err := count(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func count(ctx context.Context, client *quire.Client) error {
	created, err := client.Create(ctx, "counter", []byte("1"))
	if err != nil {
		return err
	}
	if created.Outcome == quire.Exists {
		return errors.New("the counter exists")
	}
	fmt.Println("created 1")
	entry, ok, err := client.Get(ctx, "counter")
	if err != nil || !ok {
		return errors.Join(err, errors.New("the counter cannot be read"))
	}
	for range 2 {
		updated, err := client.Update(ctx, "counter", []byte("2"), quire.ExpectedVersion(entry.Version))
		if err != nil {
			return err
		}
		switch updated.Outcome {
		case quire.Written:
			fmt.Println("updated 2")
		case quire.AnotherVersion:
			fmt.Println("another version: read again")
		case quire.NoSuchKey:
			fmt.Println("the counter is gone")
		}
	}
	return nil
}

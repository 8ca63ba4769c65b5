package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"quire"
	pb "quire/internal/wire/bookstore"
)

const benchBook = 53477

// Calls for some time and prints what that took, through the library or through the generated stub alone.
func bench(args []string) error {
	if len(args) < 2 {
		return errors.New("name the address: driver bench ADDRESS [FLAGS]")
	}
	address := args[1]
	flags := flag.NewFlagSet("driver bench", flag.ExitOnError)
	call := flags.String("call", "lookup", "lookup or buy")
	inFlight := flags.Int("in-flight", 1, "calls at once")
	seconds := flags.Float64("seconds", 5, "how long to call")
	isBare := flags.Bool("bare", false, "use the generated stub alone")
	if err := flags.Parse(args[2:]); err != nil {
		return err
	}
	once, err := caller(address, *call, *isBare)
	if err != nil {
		return err
	}
	// The first call connects, before the clock starts.
	if err := once(); err != nil {
		return err
	}
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	start, cpu := time.Now(), cpuTime()
	end := start.Add(time.Duration(*seconds * float64(time.Second)))
	for range *inFlight {
		running.Go(func() {
			for time.Now().Before(end) && failed.Load() == nil {
				if err := once(); err != nil {
					failed.Store(&err)
				}
				calls.Add(1)
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return json.NewEncoder(os.Stdout).Encode(fields{
		"calls": calls.Load(), "cpu_seconds": (cpuTime() - cpu).Seconds(), "seconds": time.Since(start).Seconds(),
	})
}

func caller(address, call string, isBare bool) (func() error, error) {
	if !isBare {
		client, err := quire.New(address)
		if err != nil {
			return nil, err
		}
		if call == "buy" {
			return func() error {
				_, err := client.Buy(context.Background(), benchBook)
				return err
			}, nil
		}
		return func() error {
			_, err := client.Lookup(context.Background(), benchBook)
			return err
		}, nil
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	stub := pb.NewBookStoreClient(conn)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		request := &pb.ItemNumberRequest{Id: benchBook}
		if call == "buy" {
			request.IdempotencyKey = []byte(quire.RandomKey())
			_, err := stub.Buy(ctx, request)
			return err
		}
		_, err := stub.Lookup(ctx, request)
		return err
	}, nil
}

// User and system time of this process.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

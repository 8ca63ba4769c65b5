package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"quire.example/quire"
	pb "quire.example/quire/internal/wire/bookstore"
)

const benchBook = 53477

// A measurement of a call, through the library or through the generated stub alone.
type bench struct {
	call     string
	inFlight int
	seconds  float64
	isBare   bool
}

// Calls for some time and prints what that took.
func (b bench) run(client *quire.Client, address string) error {
	if b.seconds <= 0 || b.inFlight < 1 {
		return errors.New("--seconds must be a number above 0, and --in-flight a whole number from 1")
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	stub := pb.NewBookStoreClient(conn)
	once := func() (err error) {
		switch b.call {
		case "buy":
			_, err = client.Buy(context.Background(), benchBook)
		default:
			_, err = client.Lookup(context.Background(), benchBook)
		}
		return err
	}
	if b.isBare {
		once = func() (err error) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			switch request := (&pb.ItemNumberRequest{Id: benchBook}); b.call {
			case "buy":
				request.IdempotencyKey = []byte(quire.RandomKey())
				_, err = stub.Buy(ctx, request)
			default:
				_, err = stub.Lookup(ctx, request)
			}
			return err
		}
	}
	// The first call connects, before the clock starts.
	fatal(once())
	var calls atomic.Int64
	var running sync.WaitGroup
	start, cpu := time.Now(), cpuTime()
	end := start.Add(time.Duration(b.seconds * float64(time.Second)))
	for range b.inFlight {
		running.Go(func() {
			for time.Now().Before(end) {
				fatal(once())
				calls.Add(1)
			}
		})
	}
	running.Wait()
	used, took := cpuTime()-cpu, time.Since(start)
	return json.NewEncoder(os.Stdout).Encode(fields{
		"calls": calls.Load(), "cpu_seconds": used.Seconds(), "seconds": took.Seconds(),
	})
}

// User and system time of this process.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

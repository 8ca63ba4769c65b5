// The arena's contract on grpc-go. GOMAXPROCS is the caller's.
package main

//go:generate protoc --proto_path=../../arena --go_out=. --go_opt=module=quire/peers/arena-go --go-grpc_out=. --go-grpc_opt=module=quire/peers/arena-go benchmark.proto

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"

	"quire/peers/arena-go/benchmark"
)

const (
	// 64 MiB: above what any load here has in flight.
	window          = 1 << 26
	messageBytesMax = 1 << 23
	// Goroutines that are used again for one stream after another.
	streamWorkers = 16
)

type arena struct {
	benchmark.UnimplementedBenchmarkServiceServer
}

func (arena) GetSum(_ context.Context, request *benchmark.SumRequest) (*benchmark.SumReply, error) {
	return &benchmark.SumReply{Result: request.GetA() + request.GetB()}, nil
}

func (arena) Echo(_ context.Context, request *benchmark.Blob) (*benchmark.Blob, error) {
	return request, nil
}

func (arena) StreamSum(request *benchmark.StreamRequest, out grpc.ServerStreamingServer[benchmark.SumReply]) error {
	var reply benchmark.SumReply
	for at := range request.GetCount() {
		reply.Result = request.GetA() + request.GetB() + at
		if err := out.Send(&reply); err != nil {
			return err
		}
	}
	return nil
}

func (arena) Count(in grpc.ClientStreamingServer[benchmark.SumRequest, benchmark.CountReply]) error {
	var reply benchmark.CountReply
	var request benchmark.SumRequest
	for {
		err := in.RecvMsg(&request)
		if errors.Is(err, io.EOF) {
			return in.SendAndClose(&reply)
		}
		if err != nil {
			return err
		}
		reply.Messages++
		reply.Sum += int64(request.GetA()) + int64(request.GetB())
	}
}

func (arena) Ingest(_ context.Context, request *benchmark.LogBatch) (*benchmark.IngestReply, error) {
	var reply benchmark.IngestReply
	for _, record := range request.GetRecords() {
		reply.Records++
		if record.GetSeverity() == benchmark.Severity_SEVERITY_ERROR {
			reply.Errors++
		}
		reply.LatestNs = max(reply.LatestNs, record.GetTimeNs())
		reply.TextBytes += uint64(len(record.GetService()) + len(record.GetInstance()) + len(record.GetMessage()) +
			len(record.GetTraceId()) + len(record.GetSpanId()) + len(record.GetSource().GetFile()) +
			len(record.GetSource().GetFunction()))
		for key, value := range record.GetLabels() {
			reply.LabelBytes += uint64(len(key) + len(value))
		}
		reply.Lines += uint64(record.GetSource().GetLine())
	}
	return &reply, nil
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: arena-go LISTEN")
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.NumStreamWorkers(streamWorkers),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.MaxRecvMsgSize(messageBytesMax),
	)
	benchmark.RegisterBenchmarkServiceServer(server, arena{})
	log.Fatal(server.Serve(listener))
}

// The OpenTelemetry Collector's OTLP receiver: prints its address, and then what it receives, a line of JSON for each export.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(address string) error {
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	protocols := map[string]any{"protocols": map[string]any{"grpc": map[string]any{"endpoint": address}}}
	if err := confmap.NewFromStringMap(protocols).Unmarshal(config); err != nil {
		return err
	}
	print, err := consumer.NewTraces(func(_ context.Context, traces ptrace.Traces) error {
		line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		if err == nil {
			fmt.Println(string(line))
		}
		return err
	})
	if err != nil {
		return err
	}
	settings := receivertest.NewNopSettings(factory.Type())
	receiver, err := factory.CreateTraces(context.Background(), settings, config, print)
	if err != nil {
		return err
	}
	if err := receiver.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		return err
	}
	fmt.Println("listening")
	select {}
}

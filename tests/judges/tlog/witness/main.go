// A witness that others wrote, for one log, in memory:
//
//	witness LISTEN KEY
//
// LISTEN is the address to listen at, and KEY the log's public key. Prints the address and the witness's public key once it
// listens.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	cosignature "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func serve(listen, key string) error {
	known, err := note.NewVerifier(key)
	if err != nil {
		return err
	}
	secret, public, err := note.GenerateKey(rand.Reader, "witness.example/judge")
	if err != nil {
		return err
	}
	signer, err := cosignature.NewSignerForCosignatureV1(secret)
	if err != nil {
		return err
	}
	if public, err = cosignature.VKeyToCosignatureV1(public); err != nil {
		return err
	}
	one, err := witness.New(context.Background(), witness.Opts{
		Persistence: inmemory.New(),
		Signers:     []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			return known, origin == known.Name(), nil
		},
	})
	if err != nil {
		return err
	}
	http.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(one).AddCheckpoint)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr(), public)
	return http.Serve(listener, nil)
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: witness LISTEN KEY")
	}
	log.Fatal(serve(os.Args[1], os.Args[2]))
}

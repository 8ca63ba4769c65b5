// Judges the signed log of a server, and receipts, by libraries that others wrote for such logs:
//
//	tlog [-witness WITNESS] URL KEY [RECEIPT...]
//
// URL is that of the folder with the file checkpoint, KEY the log's public key, and each RECEIPT a file. The checkpoint must
// be signed, the tiles must lead to its root, and the entries to the tiles. Each receipt must be proven under its own
// checkpoint, whose log must be the beginning of the server's log. WITNESS is the public key of a witness that must have
// signed the checkpoint of each receipt and the file witnessed, whose log must be such a beginning, too. Ends with 0 if all
// of this holds, with 1 if not, and with 2 if the server does not answer.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/transparency-dev/formats/log"
	cosignature "github.com/transparency-dev/formats/note"
	tlogproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const height = 8

var errUnreachable = errors.New("the server does not answer")

// server reads the log over HTTP. It is the reader of tiles that sumdb/tlog checks. All of signers sign its checkpoints, the
// log itself first.
type server struct {
	url     string
	signers []note.Verifier
}

func (s server) get(path string) ([]byte, error) {
	answer, err := http.Get(s.url + "/" + path)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errUnreachable, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s has status %d: %s", path, answer.StatusCode, body)
	}
	return body, err
}

func (s server) Height() int { return height }

func (s server) SaveTiles([]tlog.Tile, [][]byte) {}

func (s server) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var read [][]byte
	for _, tile := range tiles {
		// Without the height, which sumdb's paths have and others do not.
		bytes, err := s.get(strings.Replace(tile.Path(), "tile/8/", "tile/", 1))
		if err != nil {
			return nil, err
		}
		read = append(read, bytes)
	}
	return read, nil
}

func (s server) checkpoint(path string, signers []note.Verifier) (*log.Checkpoint, error) {
	text, err := s.get(path)
	if err != nil {
		return nil, err
	}
	return parse(text, signers)
}

func parse(text []byte, signers []note.Verifier) (*log.Checkpoint, error) {
	for _, signer := range signers {
		if _, err := note.Open(text, note.VerifierList(signer)); err != nil {
			return nil, fmt.Errorf("%s: %w", signer.Name(), err)
		}
	}
	checkpoint, _, _, err := log.ParseCheckpoint(text, signers[0].Name(), signers[0], signers[1:]...)
	return checkpoint, err
}

func treeOf(checkpoint *log.Checkpoint) tlog.Tree {
	tree := tlog.Tree{N: int64(checkpoint.Size)}
	copy(tree.Hash[:], checkpoint.Hash)
	return tree
}

// tiles reads every hash of the tree and every entry.
func (s server) tiles(tree tlog.Tree) error {
	hashes := tlog.TileHashReader(tree, s)
	for first := int64(0); first < tree.N; first += 1 << height {
		count := min(int64(1)<<height, tree.N-first)
		var indexes []int64
		for at := first; at < first+count; at++ {
			indexes = append(indexes, tlog.StoredHashIndex(0, at))
		}
		leaves, err := hashes.ReadHashes(indexes)
		if err != nil {
			return err
		}
		tile := tlog.Tile{H: height, L: -1, N: first >> height, W: int(count)}
		bundle, err := s.get(strings.Replace(tile.Path(), "tile/8/data", "tile/entries", 1))
		if err != nil {
			return err
		}
		for at, leaf := range leaves {
			if len(bundle) < 2 || len(bundle) < 2+int(binary.BigEndian.Uint16(bundle)) {
				return fmt.Errorf("the bundle of entry %d ends early", first+int64(at))
			}
			length := 2 + int(binary.BigEndian.Uint16(bundle))
			if tlog.RecordHash(bundle[2:length]) != leaf {
				return fmt.Errorf("entry %d has another hash than its tile", first+int64(at))
			}
			bundle = bundle[length:]
		}
		if len(bundle) > 0 {
			return fmt.Errorf("the bundle of entry %d is too long", first)
		}
	}
	return nil
}

// receipt checks a receipt under its checkpoint, and that the server's log begins with the log of that.
func (s server) receipt(file string, now tlog.Tree) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var receipt tlogproof.TLogProof
	if err := receipt.Unmarshal(text); err != nil {
		return err
	}
	if !bytes.Equal(receipt.Marshal(), text) {
		return errors.New("the receipt is not in the one form that such a proof has")
	}
	checkpoint, err := parse(receipt.Checkpoint, s.signers)
	if err != nil {
		return err
	}
	tree, leaf := treeOf(checkpoint), tlog.RecordHash(receipt.ExtraData)
	var path [][]byte
	var record tlog.RecordProof
	for _, hash := range receipt.Hashes {
		path, record = append(path, hash[:]), append(record, hash)
	}
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, receipt.Index, checkpoint.Size, leaf[:], path, checkpoint.Hash); err != nil {
		return err
	}
	if err := tlog.CheckRecord(record, tree.N, tree.Hash, int64(receipt.Index), leaf); err != nil {
		return err
	}
	return s.begins(tree, now)
}

// begins checks that the server's log begins with the log of another checkpoint.
func (s server) begins(tree, now tlog.Tree) error {
	if tree.N > now.N {
		return fmt.Errorf("a log of %d entries was signed, and the server's log has %d: entries are gone", tree.N, now.N)
	}
	hashes := tlog.TileHashReader(now, s)
	between, err := tlog.ProveTree(now.N, tree.N, hashes)
	if err != nil {
		return err
	}
	if err := tlog.CheckTree(between, now.N, now.Hash, tree.N, tree.Hash); err != nil {
		return fmt.Errorf("the server's log does not begin with the log that was signed: %w", err)
	}
	var steps [][]byte
	for _, hash := range between {
		steps = append(steps, hash[:])
	}
	return proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(tree.N), uint64(now.N), steps, tree.Hash[:], now.Hash[:])
}

func judge(url, key, witness string, receipts []string) error {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return err
	}
	server := server{url, []note.Verifier{verifier}}
	if witness != "" {
		verifier, err := cosignature.NewVerifierForCosignatureV1(witness)
		if err != nil {
			return err
		}
		server.signers = append(server.signers, verifier)
	}
	checkpoint, err := server.checkpoint("checkpoint", server.signers[:1])
	if err != nil {
		return err
	}
	tree := treeOf(checkpoint)
	if err := server.tiles(tree); err != nil {
		return err
	}
	if witness != "" {
		witnessed, err := server.checkpoint("witnessed", server.signers)
		if err != nil {
			return err
		}
		if err := server.begins(treeOf(witnessed), tree); err != nil {
			return err
		}
	}
	for _, file := range receipts {
		if err := server.receipt(file, tree); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	fmt.Printf("%d entries, %d receipts\n", tree.N, len(receipts))
	return nil
}

func main() {
	witness := flag.String("witness", "", "a witness's public key")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: tlog [-witness WITNESS] URL KEY [RECEIPT...]")
		os.Exit(2)
	}
	err := judge(strings.TrimSuffix(flag.Arg(0), "/"), flag.Arg(1), *witness, flag.Args()[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	switch {
	case errors.Is(err, errUnreachable):
		os.Exit(2)
	case err != nil:
		os.Exit(1)
	}
}

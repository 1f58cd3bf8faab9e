package csdshim

import (
	"bufio"
	"context"
	"net"
	"testing"

	"terrace/csdshim/wire"
	"terrace/internal/kvpage"
)

// TestBlocksLeaveAsBlocks: every frame of scores on the wire is one block of n tokens, the last what is left, whatever n is.
func TestBlocksLeaveAsBlocks(t *testing.T) {
	const tokens = 1000 / GroupTokens * GroupTokens
	d := openDrive(t, t.TempDir(), nil)
	socket, owner := serve(t, d), [16]byte{7}
	c := dial(t, socket, ClientOptions{Owner: owner})
	w := newCache(Shape{Layers: 1, KVHeads: 2, Codes: CodesInt8, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 32, ValueDim: 32, Tokens: 16}}, 1)
	if err := c.OpenSequence(context.Background(), 1, w.shape); err != nil {
		t.Fatal(err)
	}
	var batch []Group
	for g := range tokens / GroupTokens {
		batch = append(batch, w.group(0, g))
	}
	if _, err := c.WriteGroups(context.Background(), 1, batch); err != nil {
		t.Fatal(err)
	}
	w.tell(t, func(layer int, scales []float32) error {
		_, err := c.SetScales(context.Background(), 1, layer, scales)
		return err
	})
	raw, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	r := bufio.NewReader(raw)
	ask := func(kind wire.Type, id uint64, payload []byte) {
		if _, err := raw.Write(frameOf(kind, id, payload)); err != nil {
			t.Fatal(err)
		}
	}
	next := func() (wire.Header, []byte) {
		h, err := wire.ReadHeader(r)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, h.Length)
		if err := wire.ReadPayload(r, h, b); err != nil {
			t.Fatal(err)
		}
		return h, b
	}
	ask(wire.TypeHello, 0, wire.Hello{Owner: owner}.Append(nil))
	if h, _ := next(); h.Type != wire.TypeWelcome {
		t.Fatalf("greeted with %v", h.Type)
	}
	for i, n := range []int{16, 64, 256, 400, 2048} {
		q := w.query(n)
		ask(wire.TypeScore, uint64(i+1), wire.Score{Seq: 1, Query: *q}.Append(nil))
		left := tokens
		for {
			h, b := next()
			if h.Type == wire.TypeDone {
				break
			}
			if want := 8 + wire.BlockBytes(min(n, left)); h.Type != wire.TypeScores || h.At != 0 || len(b) != want {
				t.Fatalf("blocks of %d: %v frame of %d bytes with %d tokens left, want %d", n, h.Type, len(b), left, want)
			}
			left -= min(n, left)
		}
		if left != 0 {
			t.Errorf("blocks of %d: %d tokens did not come", n, left)
		}
	}
}

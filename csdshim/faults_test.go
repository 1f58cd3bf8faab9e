package csdshim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"terrace/csdshim/wire"
	"terrace/internal/kvpage"
)

// filled is a drive on a socket, with some groups written while nothing goes wrong, and what was written.
func filled(t *testing.T, rules ...Fault) (socket string, w *cache, owner [16]byte) {
	t.Helper()
	d := openDrive(t, t.TempDir(), nil)
	socket = serve(t, d)
	c := dial(t, socket, ClientOptions{Lease: Keep})
	w = newCache(smallShape(CodesInt8, true), 3)
	write(t, c, w, 5, 12)
	c.Abandon()
	d.faults.set(Faults{Seed: 1, Rules: rules})
	return socket, w, c.Owner()
}

// write opens a sequence and writes groups of every layer.
func write(t testing.TB, c *Client, w *cache, seq uint64, groups int) {
	t.Helper()
	if err := c.OpenSequence(context.Background(), seq, w.shape); err != nil {
		t.Fatal(err)
	}
	var batch []Group
	for layer := range w.shape.Layers {
		for g := range groups {
			batch = append(batch, w.group(layer, g))
		}
	}
	if _, err := c.WriteGroups(context.Background(), seq, batch); err != nil {
		t.Fatal(err)
	}
	w.tell(t, func(layer int, scales []float32) error {
		_, err := c.SetScales(context.Background(), seq, layer, scales)
		return err
	})
}

// requests are all that a client may ask, each with a check of what came back.
func requests(c *Client, w *cache, seq uint64, tokens int) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"write": func(ctx context.Context) error {
			g := w.groups[[2]int{1, 2}]
			_, err := c.WriteGroups(ctx, seq, []Group{g})
			return err
		},
		"fetch": func(ctx context.Context) error {
			got := []Group{{Layer: 0, Index: 3, Data: make([]byte, w.shape.RecordBytes())}, {Layer: 2, Index: 0, Data: make([]byte, w.shape.RecordBytes())}}
			if _, err := c.Fetch(ctx, seq, got); err != nil {
				return err
			}
			for _, g := range got {
				if !bytes.Equal(g.Data, w.groups[[2]int{g.Layer, g.Index}].Data) {
					return errWrong
				}
			}
			return nil
		},
		"gather": func(ctx context.Context) error {
			dst := make([]byte, gatherBytes(w.shape, 3))
			_, err := c.Gather(ctx, seq, 1, []int32{1, 17, 40}, dst)
			got, want := make([]float32, w.shape.Page.KeyDim), make([]float32, w.shape.Page.KeyDim)
			kvpage.ReadK(w.shape.Page, dst, 1, got)
			kvpage.ReadK(w.shape.Page, w.groups[[2]int{1, 1}].Data, 1, want)
			if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
				return errWrong
			}
			return err
		},
		"score": func(ctx context.Context) error {
			q, n := &Query{Codes: CodesInt8, Int8: bytesOf(w.shape.Width()), Block: 32, Shift: 5}, 0
			_, err := c.Score(ctx, seq, 1, q, func(b *Block) error {
				for i, p := range b.Positions {
					if b.Scores[i] != w.score(q, 1, int(p)) {
						return errWrong
					}
					n++
				}
				return nil
			})
			if err == nil && n != tokens {
				return errWrong
			}
			return err
		},
		"promote": func(ctx context.Context) error { return c.Promote(ctx, seq, nil) },
		"demote":  func(ctx context.Context) error { return c.Demote(ctx, seq, []int32{3}) },
		"stats": func(ctx context.Context) error {
			s, err := c.Stats(ctx)
			if err == nil && s.Groups != 36 {
				return errWrong
			}
			return err
		},
		"open": func(ctx context.Context) error { return c.OpenSequence(ctx, seq, w.shape) },
		"drop": func(ctx context.Context) error { return c.Drop(ctx, seq, 1000) },
	}
}

var errWrong = errors.New("a wrong answer")

func bytesOf(n int) []int8 {
	q := make([]int8, n)
	for i := range q {
		q[i] = max(int8(i*37+11), -127)
	}
	return q
}

// TestEveryFaultOfEveryRequest: whatever goes wrong, a call ends by its deadline with the right answer or an error that says
// what it is; the next client finds everything in order.
func TestEveryFaultOfEveryRequest(t *testing.T) {
	want := map[FaultKind][]error{
		FaultStall: {ErrTimeout}, FaultSlow: {nil}, FaultDisconnect: {ErrLost}, FaultShort: {ErrLost, ErrTimeout}, FaultGarbage: {ErrLost, ErrTimeout}, FaultFlip: {ErrLost},
		FaultTwice: {nil, ErrLost, ErrFrame}, FaultFail: {ErrDrive},
	}
	for kind, errs := range want {
		t.Run(string(kind), func(t *testing.T) {
			socket, w, owner := filled(t, Fault{Kind: kind, For: map[FaultKind]time.Duration{FaultSlow: time.Millisecond}[kind], On: ""})
			for name := range requests(nil, w, 5, 192) {
				c, err := Dial(context.Background(), socket, ClientOptions{Owner: owner, Lease: Keep})
				if err != nil {
					t.Fatal(err)
				}
				c.shapes[5] = w.shape // the sequence is open; to open it again would go wrong, too
				ctx, cancel := context.WithCancel(context.Background())
				if slices.Contains(errs, ErrTimeout) {
					ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				}
				err = requests(c, w, 5, 192)[name](ctx)
				cancel()
				ok := false
				for _, e := range errs {
					ok = ok || e == nil && err == nil || e != nil && errors.Is(err, e)
				}
				if !ok {
					t.Errorf("%s: %v, want one of %v", name, err, errs)
				}
				c.Abandon()
			}
		})
	}
}

// TestWrongAnswersNever lets many clients work side by side on one drive while one reply in eight goes wrong.
func TestWrongAnswersNever(t *testing.T) {
	var rules []Fault
	for _, k := range []FaultKind{FaultSlow, FaultDisconnect, FaultShort, FaultGarbage, FaultFlip, FaultTwice, FaultFail} {
		rules = append(rules, Fault{Kind: k, Chance: 0.02, For: time.Millisecond})
	}
	d := openDrive(t, t.TempDir(), func(o *Options) { o.CapacityBytes = 32 << 20 })
	socket := serve(t, d)
	caches, owners := make([]*cache, 6), make([][16]byte, 6)
	for i := range caches {
		c := dial(t, socket, ClientOptions{Lease: Keep})
		caches[i], owners[i] = newCache(smallShape(CodesInt8, i%2 == 0), uint64(i)), c.Owner()
		write(t, c, caches[i], 5, 12)
		c.Abandon()
	}
	d.faults.set(Faults{Seed: 4, Rules: rules})
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed, done := 0, 0
	for i, w := range caches {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			names := []string{"write", "fetch", "score", "promote", "demote", "open", "drop", "fetch", "score"}
			var c *Client
			for range 120 {
				if c == nil {
					var err error
					if c, err = Dial(context.Background(), socket, ClientOptions{Owner: owners[i], Lease: Keep}); err != nil {
						t.Error(err)
						return
					}
					c.shapes[5] = w.shape
				}
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				err := requests(c, w, 5, 192)[names[rng.IntN(len(names))]](ctx)
				cancel()
				mu.Lock()
				done++
				if err != nil {
					failed++
				}
				mu.Unlock()
				if errors.Is(err, errWrong) {
					t.Errorf("client %d: %v", i, err)
				}
				if err != nil {
					c.Abandon()
					c = nil
				}
			}
			if c != nil {
				c.Abandon()
			}
		})
	}
	wg.Wait()
	if failed == 0 || failed == done {
		t.Errorf("%d of %d calls failed: want some", failed, done)
	}
	d.faults.set(Faults{})
	for i, w := range caches {
		c := dial(t, socket, ClientOptions{Owner: owners[i], Lease: Keep})
		c.shapes[5] = w.shape
		for name, do := range requests(c, w, 5, 192) {
			if name != "stats" && do(context.Background()) != nil {
				t.Errorf("client %d, %s, after all faults: %v", i, name, do(context.Background()))
			}
		}
	}
}

// TestCorruptPage: one flipped bit on flash fails the reads of its group, and names it; the others can be read.
func TestCorruptPage(t *testing.T) {
	for _, keys := range []KeyPlace{KeysDDR, KeysNAND} {
		t.Run(keys.String(), func(t *testing.T) { corruptPage(t, keys) })
	}
}

func corruptPage(t *testing.T, keys KeyPlace) {
	d := openDrive(t, t.TempDir(), func(o *Options) {
		o.Keys = keys
		o.Faults = Faults{Seed: 2, Rules: []Fault{{Kind: FaultCorrupt, After: 2, Times: 1}}}
	})
	c := dial(t, serve(t, d), ClientOptions{})
	w := newCache(smallShape(CodesInt8, true), 3)
	if err := c.OpenSequence(context.Background(), 5, w.shape); err != nil {
		t.Fatal(err)
	}
	w.tell(t, func(layer int, scales []float32) error {
		_, err := c.SetScales(context.Background(), 5, layer, scales)
		return err
	})
	for g := range 5 {
		if _, err := c.WriteGroups(context.Background(), 5, []Group{w.group(0, g)}); err != nil {
			t.Fatal(err)
		}
	}
	failed := 0
	for g := range 5 {
		got := Group{Index: g, Data: make([]byte, w.shape.RecordBytes())}
		_, err := c.Fetch(context.Background(), 5, []Group{got})
		switch {
		case err == nil && !bytes.Equal(got.Data, w.groups[[2]int{0, g}].Data):
			t.Fatal("wrong bytes")
		case err != nil:
			failed++
			if !errors.Is(err, ErrCorrupt) || !bytes.Contains([]byte(err.Error()), fmt.Appendf(nil, "group %d", g)) {
				t.Errorf("group %d: %v", g, err)
			}
		}
	}
	_, err := c.Score(context.Background(), 5, 0, w.query(64), func(*Block) error { return nil })
	// With the codes in DRAM scoring goes on; from flash it fails where the damaged page holds keys.
	if err != nil && (keys == KeysDDR || !errors.Is(err, ErrCorrupt)) {
		t.Errorf("%v: score: %v", keys, err)
	}
	if failed != 1 {
		t.Errorf("%v: %d of 5 groups failed and score gave %v", keys, failed, err)
	}
}

// TestCancel: a cancelled call returns at once, and the connection goes on.
func TestCancel(t *testing.T) {
	socket, w, owner := filled(t, Fault{Kind: FaultStall, On: "score", Times: 1}, Fault{Kind: FaultStall, On: "fetch", Times: 1})
	c := dial(t, socket, ClientOptions{Owner: owner, Lease: Keep})
	c.shapes[5] = w.shape
	for _, name := range []string{"score", "fetch"} {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		if err := requests(c, w, 5, 192)[name](ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if err := requests(c, w, 5, 192)[name](context.Background()); err != nil {
			t.Errorf("%s after a cancelled one: %v", name, err)
		}
	}
}

func TestParseFault(t *testing.T) {
	got, err := ParseFault("stall:on=score,after=10,chance=0.5,times=1,frames=3,for=2s")
	if err != nil || got != (Fault{FaultStall, "score", 10, 0.5, 1, 3, 2 * time.Second}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "explode", "stall:on", "stall:after=x", "short:frames=x", "stall:for=1", "stall:what=1"} {
		if _, err := ParseFault(bad); bad != "stall:on" && !errors.Is(err, ErrRequest) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestVersions: a drive of another version, and a client of another version, are one clear error on both sides.
func TestVersions(t *testing.T) {
	d := openDrive(t, t.TempDir(), func(o *Options) { o.Faults = Faults{Rules: []Fault{{Kind: FaultVersion, Times: 1}}} })
	socket := serve(t, d)
	if _, err := Dial(context.Background(), socket, ClientOptions{}); !errors.Is(err, ErrVersion) || !bytes.Contains([]byte(err.Error()), fmt.Appendf(nil, "version %d", wire.Version+1)) {
		t.Errorf("a drive of another version: %v", err)
	}
	r, c := rawDial(t, socket)
	hello := wire.Header{Type: wire.TypeHello, Length: 20}.Append(nil)
	hello[4] = 9
	c.Write(hello)
	h, payload, err := readFrame(r)
	if err != nil || h.Type != wire.TypeError {
		t.Fatalf("%v frame, %v", h.Type, err)
	}
	f, err := wire.ParseFailure(payload)
	if err != nil || !bytes.Contains([]byte(f.Text), []byte("version 9")) {
		t.Errorf("%+v, %v", f, err)
	}
}

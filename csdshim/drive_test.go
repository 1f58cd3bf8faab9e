package csdshim

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"terrace/csdshim/profiles"
	"terrace/csdshim/wire"
	"terrace/internal/kernels/ref"
	"terrace/internal/kvpage"
)

// smallShape is a model of 3 layers with 2 KV heads of 32.
func smallShape(codes Codes, tokenMajor bool) Shape {
	return Shape{Layers: 3, KVHeads: 2, Codes: codes, Fingerprint: [32]byte{1, 2},
		Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 32, ValueDim: 32, Tokens: 16, TokenMajor: tokenMajor}}
}

// cache is what a test has written: groups of random keys and values, and the integers or halves of their codes.
type cache struct {
	shape  Shape
	rng    *rand.Rand
	groups map[[2]int]Group
	keys   map[[2]int][]float32 // layer, position → codes of a token [Width]
}

func newCache(shape Shape, seed uint64) *cache {
	return &cache{shape: shape, rng: rand.New(rand.NewPCG(seed, 7)), groups: map[[2]int]Group{}, keys: map[[2]int][]float32{}}
}

// group makes a group with fresh random bytes.
func (c *cache) group(layer, index int) Group {
	g := Group{Layer: layer, Index: index, Data: make([]byte, c.shape.RecordBytes())}
	for i := range g.Data {
		g.Data[i] = byte(c.rng.Uint32())
	}
	if c.shape.Codes != CodesNone {
		c.fill(g)
	}
	c.groups[[2]int{layer, index}] = g
	return g
}

// unit is the scale of every key.
const unit = 1.0 / 16

// scales are those of a layer: one a KV head, or for int4 one a number.
func (c *cache) scales() []float32 {
	n := c.shape.KVHeads
	if c.shape.Codes == CodesInt4 {
		n = c.shape.Width()
	}
	return slices.Repeat([]float32{unit}, n)
}

// tell says every layer's scales.
func (c *cache) tell(t testing.TB, set func(layer int, scales []float32) error) {
	t.Helper()
	if c.shape.Codes == CodesNone || c.shape.Codes == CodesHalf {
		return
	}
	for layer := range c.shape.Layers {
		if err := set(layer, c.scales()); err != nil {
			t.Fatal(err)
		}
	}
}

// fill writes random keys whose codes are small integers, some past what saturates.
func (c *cache) fill(g Group) {
	dim, size := c.shape.Page.KeyDim, c.shape.Page.PageBytes()
	most := map[Codes]int{CodesInt8: 127, CodesInt4: 7, CodesHalf: 50}[c.shape.Codes]
	for t := range GroupTokens {
		row := make([]float32, 0, c.shape.Width())
		for h := range c.shape.KVHeads {
			ints, halves := make([]int8, dim), make([]float32, dim)
			for d := range dim {
				ints[d] = int8(c.rng.IntN(2*most+1) - most)
				halves[d] = float32(ints[d]) * unit
				if int(ints[d]) == most && c.shape.Codes != CodesHalf {
					halves[d] *= 1.5
				}
			}
			kvpage.PutK(c.shape.Page, g.Data[h*size:(h+1)*size], t, halves)
			if c.shape.Codes == CodesHalf {
				row = append(row, halves...)
				continue
			}
			for _, v := range ints {
				row = append(row, float32(v))
			}
		}
		c.keys[[2]int{g.Layer, g.Index*GroupTokens + t}] = row
	}
}

// query is a random question.
func (c *cache) query(block int) *Query {
	q := &Query{Codes: c.shape.Codes, Block: block}
	for range c.shape.Width() {
		v := c.rng.IntN(255) - 127
		if c.shape.Codes == CodesHalf {
			q.Float = append(q.Float, float32(v)/32)
		} else {
			q.Int8 = append(q.Int8, int8(v))
		}
	}
	if c.shape.Codes != CodesHalf {
		for bound := 127 * 127 * c.shape.Width(); bound>>q.Shift > 65504; q.Shift++ {
		}
	}
	return q
}

// score is the definition of a token's score: the exact sum, divided, rounded to half precision.
func (c *cache) score(q *Query, layer, position int) float32 {
	key := c.keys[[2]int{layer, position}]
	var sum float64
	for i, v := range q.Int8 {
		sum += float64(v) * float64(key[i])
	}
	for i, v := range q.Float {
		sum += float64(v) * float64(key[i]) // multiples of 1/512 below 2^14: exact in float32 too
	}
	half := make([]uint16, 1)
	ref.F32ToF16(half, []float32{float32(sum * math.Ldexp(1, -q.Shift))})
	out := make([]float32, 1)
	ref.F16ToF32(out, half)
	return out[0]
}

func openDrive(t testing.TB, dir string, change func(*Options)) *Drive {
	t.Helper()
	p, err := profiles.Load("unlimited")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Profile: p, CapacityBytes: 8 << 20, NoSync: true}
	if change != nil {
		change(&o)
	}
	d, err := OpenDrive(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// serve serves a drive on a socket until the test ends, and checks that nothing is left running.
func serve(t testing.TB, d *Drive) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "csd") // t.TempDir may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, l, ServerOptions{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		os.RemoveAll(dir)
		noGoroutines(t)
	})
	return socket
}

// noGoroutines fails when goroutines of this package do not end.
func noGoroutines(t testing.TB) {
	t.Helper()
	var left string
	if !eventually(2*time.Second, func() bool {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left = ""
		for _, g := range strings.Split(string(buf), "\n\n")[1:] { // the first is this one
			if strings.Contains(g, "/csdshim.(") && !strings.Contains(g, "testing.tRunner") {
				left += g + "\n\n"
			}
		}
		return left == ""
	}) {
		t.Errorf("goroutines are left:\n%s", left)
	}
}

// eventually asks until ok says yes or the limit is over: for what another process, or a goroutine that has done its work, does
// on its own.
func eventually(limit time.Duration, ok func() bool) bool {
	tick, over := time.NewTicker(2*time.Millisecond), time.After(limit)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over:
			return false
		}
	}
	return true
}

func dial(t testing.TB, socket string, o ClientOptions) *Client {
	t.Helper()
	c, err := Dial(context.Background(), socket, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Abandon() })
	return c
}

// TestOverASocket stores, fetches, gathers and scores through a real socket and compares everything with what was written.
func TestOverASocket(t *testing.T) {
	for _, tc := range []struct {
		codes Codes
		major bool
		keys  KeyPlace
	}{{CodesInt8, false, KeysDDR}, {CodesInt8, true, KeysNAND}, {CodesInt4, true, KeysDDR}, {CodesInt4, false, KeysNAND}, {CodesHalf, true, KeysDDR}, {CodesNone, false, KeysDDR}} {
		t.Run(tc.codes.String()+"/"+tc.keys.String(), func(t *testing.T) {
			d := openDrive(t, t.TempDir(), func(o *Options) { o.Keys = tc.keys })
			c := dial(t, serve(t, d), ClientOptions{FrameBytes: 20 << 10})
			w := newCache(smallShape(tc.codes, tc.major), 1)
			ctx := context.Background()
			if err := c.OpenSequence(ctx, 5, w.shape); err != nil {
				t.Fatal(err)
			}
			set := func(layer int, scales []float32) error { _, err := c.SetScales(ctx, 5, layer, scales); return err }
			if tc.major {
				w.tell(t, set)
			}
			const groups = 20
			var batch []Group
			for layer := range w.shape.Layers {
				for g := range groups {
					batch = append(batch, w.group(layer, g))
				}
			}
			if _, err := c.WriteGroups(ctx, 5, batch); err != nil {
				t.Fatal(err)
			}
			if !tc.major { // after the groups, as at a prompt's end
				w.tell(t, set)
			}
			checkFetch(t, c, w, 5)
			checkGather(t, c, w, 5, groups*GroupTokens)
			if tc.codes != CodesNone {
				checkScores(t, c, w, 5, groups*GroupTokens)
			} else if _, err := c.Score(ctx, 5, 0, &Query{Codes: CodesInt8, Int8: make([]int8, w.shape.Width()), Block: 16}, nil); !errors.Is(err, ErrUnsupported) {
				t.Errorf("scoring without codes: %v", err)
			}
			st, err := c.Stats(ctx)
			if err != nil || st.Groups != 60 || st.GroupsWritten != 60 || st.UsedBytes == 0 || st.Sequences != 1 {
				t.Errorf("stats %+v, %v", st, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if u := d.store.Usage(); u.Sequences != 0 || u.UsedBytes != 0 {
				t.Errorf("after the client's goodbye: %+v", u)
			}
			if d.Stats().DRAMUsedBytes != 0 {
				t.Errorf("%d bytes of DRAM are in use by nobody", d.Stats().DRAMUsedBytes)
			}
		})
	}
}

func checkFetch(t *testing.T, c *Client, w *cache, seq uint64) {
	t.Helper()
	var ask []Group
	for at := range w.groups {
		ask = append(ask, Group{Layer: at[0], Index: at[1], Data: make([]byte, w.shape.RecordBytes())})
	}
	if _, err := c.Fetch(context.Background(), seq, ask); err != nil {
		t.Fatal(err)
	}
	for _, g := range ask {
		if !bytes.Equal(g.Data, w.groups[[2]int{g.Layer, g.Index}].Data) {
			t.Fatalf("layer %d group %d: other bytes came back", g.Layer, g.Index)
		}
	}
}

func checkGather(t *testing.T, c *Client, w *cache, seq uint64, tokens int) {
	t.Helper()
	var positions []int32
	for p := range tokens {
		if w.rng.IntN(3) == 0 {
			positions = append(positions, int32(p))
		}
	}
	dst := make([]byte, gatherBytes(w.shape, len(positions)))
	tm, err := c.Gather(context.Background(), seq, 1, positions, dst)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(len(positions) * w.shape.TokenBytes()); tm.LinkBytes != want {
		t.Errorf("gather: %d bytes on the link, want %d", tm.LinkBytes, want)
	}
	page := w.shape.Page.PageBytes()
	want := make([]byte, len(dst))
	for i, p := range positions {
		src := w.groups[[2]int{1, int(p) / GroupTokens}].Data
		for h := range w.shape.KVHeads {
			to := want[i/GroupTokens*w.shape.RecordBytes()+h*page:][:page]
			kvpage.Move(w.shape.Page, to, i%GroupTokens, src[h*page:(h+1)*page], int(p)%GroupTokens)
		}
	}
	if !bytes.Equal(dst, want) {
		t.Fatal("gathered tokens differ from those written")
	}
}

// checkScores promotes a third of the tokens and compares every score of the others with its definition.
func checkScores(t *testing.T, c *Client, w *cache, seq uint64, tokens int) {
	t.Helper()
	ctx := context.Background()
	var hot []int32
	for p := range tokens {
		if w.rng.IntN(3) == 0 {
			hot = append(hot, int32(p))
		}
	}
	if err := c.Promote(ctx, seq, hot); err != nil {
		t.Fatal(err)
	}
	back := hot[len(hot)/2:]
	if err := c.Demote(ctx, seq, back); err != nil {
		t.Fatal(err)
	}
	hot = hot[:len(hot)/2]
	for _, block := range []int{16, 64, 100, 1000} {
		q := w.query(block)
		q.Limit = tokens - 5
		next, blocks := int32(0), 0
		tm, err := c.Score(ctx, seq, 2, q, func(b *Block) error {
			blocks++
			if len(b.Positions) > block {
				t.Errorf("block of %d tokens, want at most %d", len(b.Positions), block)
			}
			for i, p := range b.Positions {
				for slices.Contains(hot, next) {
					next++
				}
				if p != next {
					t.Fatalf("score of position %d, want %d", p, next)
				}
				if want := w.score(q, 2, int(p)); b.Scores[i] != want {
					t.Fatalf("position %d: score %v, want %v", p, b.Scores[i], want)
				}
				next++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if int(next) < q.Limit-GroupTokens {
			t.Errorf("scores end at %d of %d", next, q.Limit)
		}
		cold := q.Limit
		for _, p := range hot {
			if int(p) < q.Limit {
				cold--
			}
		}
		if tm.LinkBytes != uint64(wire.BlockBytes(cold)) {
			t.Errorf("%d bytes of score blocks for %d tokens, want 4 each", tm.LinkBytes, cold)
		}
	}
}

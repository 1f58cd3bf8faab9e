package tokencache

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"terrace/attention"
	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

// TestCache runs testdata/NAME: what a cache finds, reads and gives up, and its account after each command. Every token that is
// handed out is compared with what was appended.
//
//	open prompt=N blocks=B slots=S [layers=L] [heads=H] [pages] [byhead]   a text whose KV is stored; B blocks of host memory, S slots a shard
//	absorb layer=L [first=I]
//	step                     begins a decode step
//	append [n=N]             a token or more, in every layer
//	begin layer=L picks=(i, j, ...) [scores=(...)]   the same picks for every head
//	finish layer=L           waits, builds the views, compares
//	done layer=L | forget token=I | cut token=I | limit slots=S | reclaim | wait | free
//	leave layer=L from=P to=P | back layer=L from=P   tokens at positions from P on become inactive, or active again
//	broken reads=N           the next N reads fail
func TestCache(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s scenario
				datadriven.RunTest(t, f, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
				s.close(t)
			})
		})
	}
}

// scenario is a text and its cache.
type scenario struct {
	o      kvmanager.Options
	m      *kvmanager.Manager
	store  *fakes.Store
	seq    *kvmanager.Sequence
	c      *Cache
	next   int
	before Stats
	waits  int64
	shown  map[int]string // what was printed of each shard last
}

var errBroken = errors.New("broken")

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	err := s.command(t, d)
	synctest.Wait()
	var out strings.Builder
	if err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
	}
	now := s.c.Stats()
	if n := now.Picked - s.before.Picked; n > 0 {
		fmt.Fprintf(&out, "%d hits, %d misses in %d groups\n", n-now.Missed+s.before.Missed, now.Missed-s.before.Missed, now.Groups-s.before.Groups)
	}
	s.before = now
	out.WriteString(s.store.Log())
	if n := s.o.Backing.Stats().Waits; n > s.waits {
		fmt.Fprintf(&out, "waited %d times\n", n-s.waits)
		s.waits = n
	}
	for i := range s.c.shards {
		sh := &s.c.shards[i]
		if now := fmt.Sprintf("shard %d: %d slots, cached%s\n", i, len(sh.owner), s.cached(t, sh)); now != s.shown[i] {
			out.WriteString(now)
			s.shown[i] = now
		}
	}
	fmt.Fprintf(&out, "%d bytes, %d of them slots\n", now.Bytes, now.Bytes-s.c.Sizes().Fixed)
	s.c.check(t)
	if err := s.m.Check(); err != nil {
		t.Error(err)
	}
	return out.String()
}

// cached is a shard's granules, runs of them as first-last; invariant 1 is checked.
func (s *scenario) cached(t *testing.T, sh *shard) string {
	var out strings.Builder
	used := 0
	for g := 0; g < len(sh.at); g++ {
		if sh.at[g] < 0 {
			continue
		}
		first := g
		for ; g < len(sh.at) && sh.at[g] >= 0; g++ {
			used++
			if sh.owner[sh.at[g]] != int32(g) {
				t.Errorf("granule %d has slot %d, which is granule %d's", g, sh.at[g], sh.owner[sh.at[g]])
			}
		}
		if fmt.Fprintf(&out, " %d", first); g-1 > first {
			fmt.Fprintf(&out, "-%d", g-1)
		}
	}
	if used == 0 {
		return " nothing"
	}
	if used+len(sh.free) != len(sh.owner) {
		t.Errorf("%d slots used, %d free, of %d", used, len(sh.free), len(sh.owner))
	}
	return out.String()
}

func number(t *testing.T, d *datadriven.TestData, name string, or int) int {
	if d.HasArg(name) {
		d.ScanArgs(t, name, &or)
	}
	return or
}

// numbers is a list of arguments, nil without.
func numbers[T int32 | float32](t *testing.T, d *datadriven.TestData, name string) (out []T) {
	for _, a := range d.CmdArgs {
		if a.Key != name {
			continue
		}
		for _, v := range a.Vals {
			var x T
			if _, err := fmt.Sscan(v, &x); err != nil {
				t.Fatalf("%s: %q: %v", d.Pos, v, err)
			}
			out = append(out, x)
		}
	}
	return out
}

func (s *scenario) command(t *testing.T, d *datadriven.TestData) error {
	layer, token := number(t, d, "layer", 0), int32(number(t, d, "token", 0))
	switch d.Cmd {
	case "open":
		s.close(t)
		s.open(t, d)
	case "absorb":
		return s.c.Absorb(layer, int32(number(t, d, "first", 0)))
	case "step":
		s.c.Step()
		return s.plan()
	case "append":
		return s.append(number(t, d, "n", 1))
	case "begin":
		picks := make([][]int32, s.o.Layers[0].KV.Heads)
		for g := range picks {
			if picks[g] = numbers[int32](t, d, "picks"); d.HasArg(fmt.Sprintf("picks%d", g)) {
				picks[g] = numbers[int32](t, d, fmt.Sprintf("picks%d", g))
			}
		}
		scores := make([][]float32, len(s.c.shardsOf(layer)))
		for i := range scores {
			if scores[i] = numbers[float32](t, d, "scores"); d.HasArg(fmt.Sprintf("scores%d", i)) {
				scores[i] = numbers[float32](t, d, fmt.Sprintf("scores%d", i))
			}
		}
		return s.c.Begin(layer, picks, scores)
	case "finish":
		if err := s.c.Finish(layer); err != nil {
			return err
		}
		return s.compare(t, layer)
	case "done":
		s.c.Done(layer)
	case "forget":
		s.c.Forget(token)
	case "cut":
		s.c.Cut(token)
		s.next = int(token)
		return s.seq.Truncate(token)
	case "leave", "back":
		was, from := slices.Clone(s.seq.PositionList(layer, 0)), int32(number(t, d, "from", 0))
		if d.Cmd == "back" {
			return errors.Join(s.seq.Swaps().Activate(layer, from), s.c.Follow(layer, was))
		}
		return errors.Join(s.seq.Swaps().Deactivate(layer, from, int32(number(t, d, "to", 0))), s.c.Follow(layer, was))
	case "limit":
		s.c.SetLimit(number(t, d, "slots", 0))
	case "reclaim":
		if !s.c.Reclaim() {
			return errors.New("nothing is left to give")
		}
	case "wait":
		_ = clock.Real().Sleep(context.Background(), time.Second)
	case "broken":
		n := number(t, d, "reads", 1)
		s.store.Change(func() {
			s.store.Fail = func(_ offload.Key, write bool) error {
				if write || n == 0 {
					return nil
				}
				n--
				return errBroken
			}
		})
	default:
		t.Fatalf("%s: command %q is not known", d.Pos, d.Cmd)
	}
	return nil
}

func (s *scenario) open(t *testing.T, d *datadriven.TestData) {
	l := kvpage.Layout{K: kvpage.F32, V: kvpage.F32, KeyDim: 4, ValueDim: 6, Tokens: 16, TokenMajor: true}
	o := kvmanager.Options{Layers: cacheshape.Equal(number(t, d, "layers", 1), number(t, d, "heads", 2), cacheshape.KV{Heads: number(t, d, "heads", 2), KeyDim: l.KeyDim, ValueDim: l.ValueDim}), Layout: l}
	*s = scenario{store: fakes.New(o.Layers, l), shown: map[int]string{}}
	o.Backing = offload.NewQueue(s.store, offload.QueueOptions{})
	o.BudgetBytes = int64(number(t, d, "blocks", 100)) * 4096
	t.Cleanup(func() { _ = o.Backing.Close() })
	var err error
	if s.m, err = kvmanager.New(o); err != nil {
		t.Fatal(err)
	}
	s.o, s.seq = o, s.m.NewSequence()
	if err := s.append(number(t, d, "prompt", 0)); err != nil {
		t.Fatal(err)
	}
	_ = clock.Real().Sleep(context.Background(), time.Second) // all is stored
	co := Options{Pages: d.HasArg("pages"), ByHead: d.HasArg("byhead")}
	for layer := range o.Layers {
		co.Layers = append(co.Layers, layer)
	}
	if err := s.plan(); err != nil {
		t.Fatal(err)
	}
	if s.c, err = New(s.seq, co); err != nil {
		t.Fatal(err)
	}
	s.store.Log()
	s.waits = o.Backing.Stats().Waits
	s.c.SetLimit(number(t, d, "slots", 0))
}

// plan begins a pass that reads no layer whole: what has been written leaves memory.
func (s *scenario) plan() error {
	cached := make([]bool, len(s.o.Layers))
	for layer := range cached {
		cached[layer] = true
	}
	return s.m.Plan([]kvmanager.Growth{{Seq: s.seq, Rows: 1, Cached: cached}})
}

// append adds tokens to every layer; what is complete begins to be stored, and leaves memory.
func (s *scenario) append(n int) error {
	l := s.o.Layout
	for layer := range s.o.Layers {
		var k, v []float32
		var pos []int32
		for i := s.next; i < s.next+n; i++ {
			pos = append(pos, int32(i))
			for x := range s.o.Layers[layer].KV.Heads * l.KeyDim {
				k = append(k, number32(i, layer, x/l.KeyDim, x%l.KeyDim))
			}
			for x := range s.o.Layers[layer].KV.Heads * l.ValueDim {
				v = append(v, -number32(i, layer, x/l.ValueDim, x%l.ValueDim))
			}
		}
		if err := errors.Join(s.seq.Append(layer, k, v, pos), s.seq.Release(layer)); err != nil {
			return err
		}
	}
	s.next += n
	return nil
}

// number32 names a token, a layer, a head and a dimension.
func number32(token, layer, head, dim int) float32 {
	return float32(token) + float32(layer)/4 + float32(head)/16 + float32(dim)/128
}

// compare builds a layer's views and looks at every token in them: each head has the picked tokens and the newest, and where
// whole pages are read the selection says which tokens of them.
func (s *scenario) compare(t *testing.T, layer int) error {
	views, sel, tiles, err := s.c.Views(layer)
	if err != nil {
		return err
	}
	var scratch Scratch
	for i := range tiles {
		s.c.Build(i, &scratch)
	}
	if len(views) != s.o.Layers[layer].KV.Heads {
		t.Fatalf("%d views, want %d", len(views), s.o.Layers[layer].KV.Heads)
	}
	for g := range views {
		picks := s.c.layers[layer].picks[g/s.c.of[layer].heads]
		var chosen []int32
		if sel != nil {
			chosen = sel[g]
		}
		if s.lookAt(t, layer, g, &views[g], picks, chosen); len(picks) == 0 || int(picks[len(picks)-1]) != s.seq.Tokens(layer, g)-1 {
			t.Errorf("head %d: the newest token is not read", g)
		}
	}
	return nil
}

func (s *scenario) lookAt(t *testing.T, layer, g int, view *attention.View, picks, chosen []int32) {
	l := view.Layout
	k, v := make([]float32, l.KeyDim), make([]float32, l.ValueDim)
	for i, index := range picks {
		at, token := i, s.seq.PositionList(layer, g)[index]
		if chosen != nil {
			at = int(chosen[i])
		}
		page := &view.Pages[at/l.Tokens]
		if at%l.Tokens >= page.N || page.Pos[at%l.Tokens] != token {
			t.Fatalf("layer %d head %d: place %d is not token %d", layer, g, at, token)
		}
		kvpage.ReadK(l, page.Data, at%l.Tokens, k)
		kvpage.ReadV(l, page.Data, at%l.Tokens, v)
		for dim := range v {
			if want := number32(int(token), layer, g, dim); v[dim] != -want || dim < len(k) && k[dim] != want {
				t.Fatalf("layer %d head %d token %d: key %v, value %v", layer, g, token, k, v)
			}
		}
	}
}

// close gives everything back and checks that nothing is left.
func (s *scenario) close(t *testing.T) {
	if s.m == nil {
		return
	}
	err := s.c.Free()
	s.seq.Free()
	if cerr := errors.Join(err, s.m.Check()); cerr != nil || s.m.Stats().InUseBytes > 0 {
		t.Errorf("%v, %d bytes in use", cerr, s.m.Stats().InUseBytes)
	}
	if n, _ := s.store.Records(); n > 0 {
		t.Errorf("%d records are left", n)
	}
	if err := s.m.Close(); err != nil {
		t.Error(err)
	}
}

// TestRefused: what a cache cannot keep is refused by name.
func TestRefused(t *testing.T) {
	for name, l := range map[string]kvpage.Layout{"keys in tiles": {K: kvpage.F32, V: kvpage.F32, KeyDim: 4, ValueDim: 4, Tokens: 16}, "quantized": {K: kvpage.I8, V: kvpage.I8, KeyDim: 16, ValueDim: 16, Tokens: 16}} {
		layers := cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: l.KeyDim, ValueDim: l.ValueDim})
		q := offload.NewQueue(fakes.New(layers, l), offload.QueueOptions{})
		m, err := kvmanager.New(kvmanager.Options{Layers: layers, Layout: l, Backing: q})
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSequence()
		if _, err := New(s, Options{Layers: []int{0}}); !errors.Is(err, kvmanager.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
		s.Free()
		if err := errors.Join(m.Check(), m.Close(), q.Close()); err != nil {
			t.Error(err)
		}
	}
	m, err := kvmanager.New(kvmanager.Options{Layers: cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 4}), Layout: kvpage.Layout{K: kvpage.F32, V: kvpage.F32, KeyDim: 4, ValueDim: 4, TokenMajor: true}})
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSequence()
	if _, err := New(s, Options{Layers: []int{0}}); !errors.Is(err, kvmanager.ErrUnsupported) {
		t.Errorf("without a backing store: %v", err)
	}
	s.Free()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

package kvmanager

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

	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/kvmanager/fakes"
)

// TestScenarios runs testdata/NAME: what sequences do, with what is read and written for it, what was waited for, and the
// account after each command. Tokens are compared with what they must be wherever a layer is read.
//
//	open elem=f32 [blocks=N]           a cache of 2 layers and 3 heads; with N blocks of host memory and a backing store
//	new NAME | fork FROM NAME | free NAME
//	plan NAME [rows=R] [tokens=T]      before a pass
//	append NAME n=N [layer=L]          to all layers, or to one
//	keep NAME layer=L head=H drop=(i, j)  drops tokens i to j-1
//	prefetch NAME layer=L [low=P]
//	fetch NAME layer=L [low=P]         acquires, and compares
//	release NAME layer=L
//	deactivate NAME layer=L from=P to=P | activate NAME layer=L from=P
//	truncate NAME next=P
//	wait                               until nothing is under way
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, f := range files {
		if filepath.Base(f) == "status" { // TestStatus's
			continue
		}
		t.Run(filepath.Base(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s scenario
				datadriven.RunTest(t, f, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
				s.close(t)
			})
		})
	}
}

type scenario struct {
	o     Options
	m     *Manager
	store *fakes.Store
	seqs  map[string]*scenarioSeq
	waits int64
}

type scenarioSeq struct {
	s    *Sequence
	want *reference
	next []int // by layer
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	err := s.command(t, d)
	synctest.Wait() // what was begun is in the log, nothing has ended
	var out strings.Builder
	if err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
	}
	if s.store != nil {
		out.WriteString(s.store.Log())
		if n := s.o.Backing.Stats().Waits; n > s.waits {
			fmt.Fprintf(&out, "waited %d times\n", n-s.waits)
			s.waits = n
		}
		if r, w := underWay(s.m.backing.reads), underWay(s.m.backing.writes); r+w > 0 {
			fmt.Fprintf(&out, "under way: %d reads, %d writes\n", r, w)
		}
	}
	fmt.Fprintf(&out, "%d bytes in use", s.m.Stats().InUseBytes)
	if s.store != nil {
		fmt.Fprintf(&out, ", %d records stored", stored(s.store))
	}
	if err := s.m.Check(); err != nil {
		t.Error(err)
	}
	return out.String() + "\n"
}

// underWay is how many transfers have not ended.
func underWay(transfers []*transfer) (n int) {
	for _, t := range transfers {
		if !t.t.Ready() {
			n++
		}
	}
	return n
}

// number is an argument, or a default.
func number(t *testing.T, d *datadriven.TestData, name string, or int) int {
	if d.HasArg(name) {
		d.ScanArgs(t, name, &or)
	}
	return or
}

func (s *scenario) command(t *testing.T, d *datadriven.TestData) error {
	layer, low := number(t, d, "layer", -1), int32(number(t, d, "low", 0))
	if d.Cmd == "open" {
		s.open(t, d)
		return nil
	}
	if d.Cmd == "wait" {
		_ = clock.Real().Sleep(context.Background(), time.Second)
		return nil
	}
	name := d.CmdArgs[0].Key
	q := s.seqs[name]
	switch d.Cmd {
	case "new":
		s.seqs[name] = &scenarioSeq{s.m.NewSequence(), newReference(s.o), make([]int, len(s.o.Layers))}
	case "fork":
		f, err := q.s.Fork()
		s.seqs[d.CmdArgs[1].Key] = &scenarioSeq{f, q.want.clone(), slices.Clone(q.next)}
		return err
	case "free":
		q.s.Free()
		delete(s.seqs, name)
	case "plan":
		return s.m.Plan([]Growth{{Seq: q.s, Rows: number(t, d, "rows", 0), Tokens: number(t, d, "tokens", 0)}})
	case "append":
		for l := range s.o.Layers {
			if layer >= 0 && l != layer {
				continue
			}
			n := number(t, d, "n", 1)
			if err := addLayer(t, s.o, q.s, q.want, l, q.next[l], n); err != nil {
				return err
			}
			q.next[l] += n
		}
	case "keep":
		head, i, j := number(t, d, "head", 0), 0, 0
		d.ScanArgs(t, "drop", &i, &j)
		at := layer*s.o.Layers[0].KV.Heads + head
		keep := slices.Delete(upTo(q.s.Tokens(layer, head)), i, j)
		if err := q.s.Keep(layer, head, keep); err != nil {
			return err
		}
		q.want.ids[at], q.want.pos[at] = slices.Delete(q.want.ids[at], i, j), slices.Delete(q.want.pos[at], i, j)
	case "prefetch":
		q.s.Prefetch(layer, low)
	case "fetch":
		if err := q.s.Acquire(layer, low); err != nil {
			return err
		}
		if !s.o.Layout.K.Quantised() && low == 0 {
			holdsLayer(t, s.o, q.s, q.want, layer)
		}
	case "release":
		return q.s.Release(layer)
	case "deactivate":
		return s.deactivate(t, d, q, layer)
	case "activate":
		return s.activate(t, d, q, layer)
	case "truncate":
		next := number(t, d, "next", 0)
		for i := range q.want.pos {
			n, _ := slices.BinarySearch(q.want.pos[i], next)
			q.want.ids[i], q.want.pos[i] = q.want.ids[i][:n], q.want.pos[i][:n]
		}
		for l := range q.next {
			q.next[l] = min(q.next[l], next)
		}
		return q.s.Truncate(int32(next))
	default:
		t.Fatalf("%s: command %q is not known", d.Pos, d.Cmd)
	}
	return nil
}

func (s *scenario) open(t *testing.T, d *datadriven.TestData) {
	s.close(t)
	*s = scenario{o: shape(kvpage.F32, 0), seqs: map[string]*scenarioSeq{}}
	if d.HasArg("quantized") {
		layers, layout := len(s.o.Layers), quantizedShape(16).Layout
		s.o.Layout, s.o.Window = layout, 32
		equal(&s.o, layers, s.o.Layers[0].KV.Heads, layout.KeyDim, layout.ValueDim)
	}
	if blocks := number(t, d, "blocks", 0); blocks > 0 {
		s.o, s.store = onTiers(t, s.o, blocks)
	}
	var err error
	if s.m, err = New(s.o); err != nil {
		t.Fatal(err)
	}
}

// deactivate takes tokens out of what is to be seen.
func (s *scenario) deactivate(t *testing.T, d *datadriven.TestData, q *scenarioSeq, layer int) error {
	from, to := number(t, d, "from", 0), number(t, d, "to", 0)
	if err := q.s.Swaps().Deactivate(layer, int32(from), int32(to)); err != nil {
		return err
	}
	for g := range s.o.Layers[0].KV.Heads {
		at := layer*s.o.Layers[0].KV.Heads + g
		i, _ := slices.BinarySearch(q.want.pos[at], from)
		j, _ := slices.BinarySearch(q.want.pos[at], to)
		q.want.ids[at], q.want.pos[at] = slices.Delete(q.want.ids[at], i, j), slices.Delete(q.want.pos[at], i, j)
	}
	return nil
}

// activate puts them back; a token's id is its position.
func (s *scenario) activate(t *testing.T, d *datadriven.TestData, q *scenarioSeq, layer int) error {
	from := number(t, d, "from", 0)
	p := q.s.swaps.inactive[inactiveKey{layer, int32(from)}]
	if err := q.s.Swaps().Activate(layer, int32(from)); err != nil {
		return err
	}
	for g := range s.o.Layers[0].KV.Heads {
		at := layer*s.o.Layers[0].KV.Heads + g
		for _, pos := range p.pos {
			i, _ := slices.BinarySearch(q.want.pos[at], int(pos))
			q.want.ids[at], q.want.pos[at] = slices.Insert(q.want.ids[at], i, int(pos)), slices.Insert(q.want.pos[at], i, int(pos))
		}
	}
	return nil
}

// close frees what is open and checks that nothing is left.
func (s *scenario) close(t *testing.T) {
	if s.m == nil {
		return
	}
	for _, q := range s.seqs {
		q.s.Free()
	}
	if s.store != nil && stored(s.store) > 0 {
		t.Errorf("%d records are left", stored(s.store))
	}
	if err := errors.Join(s.m.Check(), s.m.Close()); err != nil || s.m.Stats().InUseBytes > 0 {
		t.Errorf("%v, %d bytes in use", err, s.m.Stats().InUseBytes)
	}
}

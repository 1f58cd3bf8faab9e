package kvmanager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/datadriven"

	"terrace/internal/kvpage"
)

// TestStatus: what happens to a block, by the script in testdata, and that no event leads where the script does not say. go test ./kvmanager -run
// TestStatus -rewrite writes the answers.
func TestStatus(t *testing.T) {
	reached := map[status]bool{unstored: true}
	datadriven.RunTest(t, "testdata/status", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "table" {
			return statusTable()
		}
		b := &block{group: 3, layer: 1}
		for _, a := range d.CmdArgs {
			switch a.Key {
			case "pins":
				b.pins = 1
			case "writers":
				b.writable = 1
			case "staying":
				b.staying = 1
			case "yielding":
				b.staying, b.yielding = 1, true
			default:
				d.Fatalf(t, "what is %q", a.Key)
			}
		}
		var out strings.Builder
		for _, name := range strings.Fields(d.Input) {
			e := event(slices.Index(eventNames[:], name))
			if e >= events {
				d.Fatalf(t, "no event %q", name)
			}
			fmt.Fprintf(&out, "%s: %s\n", name, turned(b, e))
			reached[b.status] = true
		}
		return out.String()
	})
	for s := range statuses {
		if !reached[s] {
			t.Errorf("no script comes to %v", s)
		}
	}
}

// turned is a block after an event, in words.
func turned(b *block, e event) (said string) {
	defer func() {
		if r := recover(); r != nil {
			said = fmt.Sprint(r)
		}
	}()
	b.turn(e)
	said = b.status.String()
	for _, is := range []struct {
		name string
		yes  bool
	}{{"in memory", b.inMemory()}, {"moving", b.moving()}, {"reading", b.reading()}, {"idle", b.idle()}, {"leaving", b.leaving()}} {
		if is.yes {
			said += ", " + is.name
		}
	}
	return said
}

// statusTable is every transition.
func statusTable() string {
	var out strings.Builder
	for s := range statuses {
		fmt.Fprintf(&out, "%v:", s)
		for e := range events {
			if to := next[s][e]; to != never {
				fmt.Fprintf(&out, " %v→%v", e, to)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

// TestStatusTable: a block that moves ends somewhere, and leaves memory only when the store has its bytes.
func TestStatusTable(t *testing.T) {
	at := func(s status) *block { return &block{status: s} }
	for s := range statuses {
		for e := range events {
			to := next[s][e]
			if to == never {
				continue
			}
			if at(s).moving() && e != moved && e != failed {
				t.Errorf("%v: %v while it moves", s, e)
			}
			if (e == moved || e == failed) != at(s).moving() {
				t.Errorf("%v: %v of what does not move", s, e)
			}
			if at(s).inMemory() && !at(to).inMemory() && e != left && s != cached && s != fetching {
				t.Errorf("%v: %v has it leave memory, and the store has not its bytes", s, e)
			}
			if !at(s).inMemory() && at(to).inMemory() && e != asked {
				t.Errorf("%v: %v brings it to memory", s, e)
			}
		}
		if s != gone && at(s).moving() == (next[s][left] != never) {
			t.Errorf("%v: what moves must end before it goes", s)
		}
		if next[gone][event(s)] != never {
			t.Errorf("what is gone is %v", event(s))
		}
	}
}

// TestRaggedHeadsOnTiers: heads of different lengths on a tier are appended to while blocks in between, of which nothing changes, are not in
// memory: they stay there, and all is as in a plain list.
func TestRaggedHeadsOnTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := shape(kvpage.F32, 0)
		o, d := onTiers(t, o, 20)
		m := open(t, o)
		s := m.NewSequence()
		defer s.Free()
		want := newReference(o)
		for next := 0; next < 192; next += 32 {
			grow(t, o, s, want, make([]int, 32), next)
		}
		idx := make([]int, 35)
		for i := range idx {
			idx[i] = i
		}
		for layer := range o.Layers {
			keep(t, o, s, want, layer, 0, idx)
			if err := s.Release(layer); err != nil {
				t.Fatal(err)
			}
		}
		readPasses(t, m, func() int { return reads(d) }, s)
		away := 0
		for layer := range o.Layers {
			for _, b := range s.store.(*tiered).layers[layer].blocks[3:11] {
				if b.status == below {
					away++
				}
			}
		}
		if away == 0 {
			t.Fatal("no block in between has left memory: the test says nothing")
		}
		before := writes(d)
		grow(t, o, s, want, []int{7}, 192)
		readPasses(t, m, func() int { return reads(d) }, s)
		if n := writes(d) - before; n > 2*len(o.Layers) {
			t.Errorf("one token more writes %d blocks, want those of the two heads' ends a layer at most", n)
		}
		for layer := range o.Layers {
			if err := s.Acquire(layer, 0); err != nil {
				t.Fatal(err)
			}
			holdsLayer(t, o, s, want, layer)
			if err := s.Release(layer); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.backing.takeWritten(); err != nil {
			t.Fatal(err)
		}
		check(t, m, nil, s)
	})
}

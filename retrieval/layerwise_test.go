package retrieval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"terrace/attention"
	"terrace/csdshim"
	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
	"terrace/kvmanager"
)

// sectionwise reads n tokens layer by layer in sections, each of which passes all layers before the next, in blocks of a few rows.
func (s *scenario) sectionwise(x *scenarioText, n, section, block int) error {
	x.SetPrompt(int(x.Read()) + n)
	for left := n; left > 0; {
		rows := min(section, left)
		if err := s.section(x, rows, left-rows, block); err != nil {
			return err
		}
		left -= rows
	}
	return nil
}

// section takes the next rows through the layers.
func (s *scenario) section(x *scenarioText, rows, rest, block int) error {
	var p Pass
	base := int(x.Read())
	open := func(lo, hi int) {
		p.Open(s.shared)
		reading := Block
		if hi == rows && rest == 0 {
			reading = LastBlock
		}
		p.Rows = append(p.Rows, Rows{Sequence: x.Sequence, Reading: reading, New: hi - lo, Pos: upTo(int32(base + hi))[base+lo:], Len: base + rows + rest})
	}
	open(0, min(rows, block))
	if err := s.shared.Begin(&p); err != nil {
		return err
	}
	x.out = nil
	for layer := range s.shared.o.Shape.Layers {
		for lo := 0; lo < rows; {
			hi := lo + x.ChunkRows(rows-lo+rest, block)
			hi = min(hi, rows)
			open(lo, hi)
			if err := s.blockOf(&p, x, layer); err != nil {
				p.Undo(true)
				return err
			}
			lo = hi
		}
		if rest == 0 {
			if err := x.EndPrompt(layer, rows); err != nil {
				return err
			}
		}
		p.Release(layer)
		s.settle()
	}
	x.EndSection(int32(base + rows))
	return nil
}

// blockOf takes rows through one layer.
func (s *scenario) blockOf(p *Pass, x *scenarioText, layer int) error {
	m := &s.shared.o.Shape
	kv, width, r := m.kv(layer), m.queryWidth(layer), &p.Rows[0]
	q := s.rows(p, ofQueries, layer, width)
	if err := p.Append(layer, s.rows(p, ofKeys, layer, kv.Heads*kv.KeyDim), s.rows(p, ofValues, layer, kv.Heads*kv.ValueDim)); err != nil {
		return err
	}
	p.Observe(layer, q)
	p.Select(layer, q)
	if err := p.Prepare(layer+1, nil); err != nil {
		return err
	}
	s.settle()
	seqs := p.Fetch(layer)
	if r.Err != nil {
		return r.Err
	}
	seqs[0].Q, seqs[0].Out = q, make([]float32, len(r.Pos)*m.outWidth(layer))
	attention.Attend(s.pool, kernels.Prefill, m.params(layer), seqs)
	x.out = append(x.out, seqs[0].Out...)
	p.Attended(layer, seqs[0].Out)
	return r.Err
}

// TestLayerByLayerIsChunks: a prompt that passes layer by layer, in one section or in several, leaves what chunks leave: the same tokens,
// the same index, and so the same steps.
func TestLayerByLayerIsChunks(t *testing.T) {
	const prompt, steps = 230, 4
	for i, place := range places {
		for j, section := range []int{prompt, 96} {
			if j != i%2 && !thorough() {
				continue
			}
			bubble(t, fmt.Sprint(place.name, section), func(t *testing.T) {
				spec := parsed(t, place.policy)
				s := openScenario(t, spec, place.with)
				defer s.close(t)
				x := s.text(t, "a", spec)
				want := alone(t, place.policy, x.seed, prompt, steps)
				if err := s.sectionwise(x, prompt, section, 64); err != nil {
					t.Fatal(err)
				}
				s.check(t)
				for step := range steps {
					if err := s.step(x); err != nil || x.outputs() != want[step] {
						t.Fatalf("step %d: %v, or outputs differ from those behind chunks", step, err)
					}
					s.check(t)
				}
			})
		}
	}
}

// TestLayerGoesDownOnce: where the whole prompt passes a layer before the next, its blocks are written once and none is read again.
func TestLayerGoesDownOnce(t *testing.T) {
	bubble(t, "once", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{blocks: 64})
		defer s.close(t)
		x := s.text(t, "a", spec)
		if err := s.sectionwise(x, 400, 400, 64); err != nil {
			t.Fatal(err)
		}
		s.wait()
		if reads, writes := s.store.Moved(); reads > 0 || writes > 3*25 {
			t.Errorf("%d records read, %d written, of 75", reads, writes)
		}
	})
}

// TestFailedSectionIsTakenBack: a section that cannot go on is taken back to where it began.
func TestFailedSectionIsTakenBack(t *testing.T) {
	bubble(t, "section", func(t *testing.T) {
		for _, with := range []setup{{}, {blocks: 90}} {
			spec := parsed(t, "full")
			s := openScenario(t, spec, with)
			x := s.text(t, "a", spec)
			if err := s.prompt(x, 64, 64); err != nil {
				t.Fatal(err)
			}
			var p Pass
			p.Open(s.shared)
			p.Rows = append(p.Rows, Rows{Sequence: x.Sequence, Reading: Block, New: 40, Pos: upTo(104)[64:], Len: 104})
			if err := errors.Join(s.shared.Begin(&p), s.blockOf(&p, x, 0)); err != nil {
				t.Fatal(err)
			}
			if x.Held(0, 0) != 104 {
				t.Fatalf("%d tokens", x.Held(0, 0))
			}
			p.Undo(true)
			s.check(t)
			if x.Read() != 64 || x.Held(0, 0) != 64 || x.Held(1, 0) != 64 {
				t.Errorf("%d read, %d and %d held", x.Read(), x.Held(0, 0), x.Held(1, 0))
			}
			want := alone(t, "full", x.seed, 64, 1)
			if err := s.step(x); err != nil || x.outputs() != want[0] {
				t.Errorf("the step behind it: %v, or outputs differ", err)
			}
			s.close(t)
		}
	})
}

// TestWatchedForkGoesOn: a policy that watched a prompt's queries while it was read under full goes on in a fork as if the prompt had been
// read under it; one fork takes what one call began; who comes too late, or has missed rows, is refused.
func TestWatchedForkGoesOn(t *testing.T) {
	bubble(t, "watch", func(t *testing.T) {
		full, under := parsed(t, "full"), parsed(t, "infinigen:query=exact")
		edit := func(o *Options, ko *kvmanager.Options) {
			o.Shape.Observed = unitBases(o.Shape.Model)
			ko.Layout.TokenMajor = true
		}
		s := openScenario(t, full, setup{edit: edit})
		defer s.close(t)
		x, y := s.text(t, "a", full), s.text(t, "b", under)
		y.seed = x.seed
		if err := errors.Join(x.Watch(under), x.Watch(under)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.prompt(x, 180, 64), s.prompt(y, 180, 64)); err != nil {
			t.Fatal(err)
		}
		f, err := x.Fork(SequenceOptions{Policy: under})
		if err != nil {
			t.Fatal(err)
		}
		g := &scenarioText{Sequence: f, seed: x.seed}
		s.texts["fork"] = g
		for layer := range 3 {
			if err := f.EndPrompt(layer, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			if err := errors.Join(s.step(y), s.step(g)); err != nil {
				t.Fatal(err)
			}
			if g.outputs() != y.outputs() {
				t.Fatal("the fork reads or computes otherwise")
			}
		}
		if err := x.Watch(under); err == nil {
			t.Error("a text that has begun is watched")
		}
		if err := s.prompt(x, 10, 64); err != nil {
			t.Fatal(err)
		}
		x.watchers[1].seen = 3
		if _, err := x.Fork(SequenceOptions{Policy: under}); err == nil {
			t.Error("a policy that missed rows goes on")
		}
		if x.watchers[0].set != nil {
			t.Error("what a fork took is still there")
		}
	})
}

// TestStatesFollowPasses: the state of recurrent layers beside attention is committed by passes that end, comes back with those that fail,
// and is part of the budget.
func TestStatesFollowPasses(t *testing.T) {
	bubble(t, "states", func(t *testing.T) {
		kv := cacheshape.KV{Heads: 2, KeyDim: 32, ValueDim: 32}
		layers := cacheshape.Model{{State: cacheshape.State{Bytes: 64}}, {Heads: 4, KV: kv, Owner: 1}}
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{layers: layers})
		defer s.close(t)
		x := s.text(t, "a", spec)
		write := func(v float32) {
			from, to, err := x.Seq().States().Layer(0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range to {
				to[i] = from[i] + v
			}
		}
		s.broken = func(layer int, p *Pass) { write(1) }
		if err := s.prompt(x, 20, 8); err != nil {
			t.Fatal(err)
		}
		if got := s.shared.o.KV.Stats().ChargedBytes; got != 2*64 {
			t.Errorf("%d bytes of state are charged", got)
		}
		s.broken = func(layer int, p *Pass) { write(5); p.Fail(0, errTest) }
		if err := s.step(x); !errors.Is(err, errTest) {
			t.Fatal(err)
		}
		s.broken = func(layer int, p *Pass) { write(1) }
		if err := s.step(x); err != nil {
			t.Fatal(err)
		}
		data, known := x.Seq().States().Append(nil, 21)
		if !known || !slices.Equal(data[:4], []byte{0, 0, 0x80, 0x40}) { // 4: three chunks and a step
			t.Errorf("the state after 21 tokens is known: %v, %v", known, data)
		}
		if err := x.Truncate(20); err != nil || x.Read() != 20 {
			t.Errorf("back to the state before: %v", err)
		}
	})
}

// TestThreadsChangeNothing: what texts of a batch do at the same time on several threads, and beside a layer's attention, is what they do one
// after another; it is done beside attention where there are threads.
func TestThreadsChangeNothing(t *testing.T) {
	type result struct {
		out    string
		scores ScoreUse
		beside int
	}
	steps := func(t *testing.T, pool, attends *kernels.Pool, name string, codes csdshim.Codes, lengths []int) (r result) {
		spec := parsed(t, name)
		s := openScenario(t, spec, setup{blocks: 500, codes: codes, edit: func(o *Options, _ *kvmanager.Options) {
			o.Pool, o.Threads = pool, pool.Threads()
		}})
		defer s.close(t)
		s.pause = 10 * time.Millisecond // a drive's answers are there
		s.pool = attends
		var texts []*scenarioText
		for _, n := range lengths {
			x := s.text(t, fmt.Sprint("text ", n), spec)
			if err := s.prompt(x, n, 64); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, x)
		}
		for range 5 {
			if err := s.step(texts...); err != nil {
				t.Fatal(err)
			}
			s.check(t)
			for _, x := range texts {
				r.out += x.outputs()
			}
		}
		if _, times := s.shared.Accounts().PolicyTime()["hillinfer"]; !times && codes == csdshim.CodesNone && strings.HasPrefix(name, "hillinfer") {
			t.Errorf("policies' times: %v", s.shared.Accounts().PolicyTime())
		}
		r.scores, r.beside = s.shared.Accounts().Scores(), s.beside
		return r
	}
	run := func(t *testing.T, name string, codes csdshim.Codes, threads int, alone bool, lengths []int) (r result) {
		pool := kernels.NewPool(threads) // outside the bubble, where time goes on while its threads spin
		defer pool.Close()
		attends := pool
		if alone {
			attends = kernels.NewPool(1)
			defer attends.Close()
		}
		bubble(t, fmt.Sprint(threads), func(t *testing.T) { r = steps(t, pool, attends, name, codes, lengths) })
		return r
	}
	for _, x := range []struct {
		name  string
		codes csdshim.Codes
		ahead bool // the next layer's query is known
	}{
		{"hillinfer:alpha=0.2,query=prev_step", csdshim.CodesNone, true},
		{"hillinfer:alpha=0.2,guess_from=0,heads=max", csdshim.CodesNone, true},
		{"hillinfer:alpha=0.2,query=exact", csdshim.CodesNone, false},
		{"quest:budget=64,dense_layers=0", csdshim.CodesNone, false},
		{"topk:budget=40", csdshim.CodesNone, false},
		{"sparq:budget=40", csdshim.CodesNone, false},
		{"hillinfer:alpha=0.03,guess_from=0,beta_mode=fixed,beta=0.3", csdshim.CodesInt8, true},
		{"hillinfer:alpha=0.03,guess_from=0,beta_mode=fixed,beta=0.3,hie=false", csdshim.CodesInt8, false},
	} {
		for _, lengths := range [][]int{{230}, {130, 200, 170}} {
			t.Run(fmt.Sprint(x.name, len(lengths)), func(t *testing.T) {
				one := run(t, x.name, x.codes, 1, false, lengths)
				if one.beside != 0 {
					t.Errorf("%d decisions beside attention with one thread", one.beside)
				}
				for _, alone := range []bool{false, true} { // true: attention is computed elsewhere, as on a device
					three := run(t, x.name, x.codes, 3, alone, lengths)
					if one.out != three.out {
						t.Error("picks or outputs depend on threads")
					}
					a, b := one.scores, three.scores
					if a.HostTokens != b.HostTokens || a.DriveTokens != b.DriveTokens || a.SketchBytes != b.SketchBytes {
						t.Errorf("scored by one thread: %+v, by three: %+v", a, b)
					}
					if three.beside > 0 != x.ahead {
						t.Errorf("%d decisions beside attention with three threads", three.beside)
					}
				}
			})
		}
	}
}

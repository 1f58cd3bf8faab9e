package engine

import (
	"fmt"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/retrieval"
)

// passOf is a pass of one decode step of each session.
func passOf(e *Engine, sessions []*Session, id int) *pass {
	p := &pass{}
	p.open(e, e.phase(false))
	for _, s := range sessions {
		p.add(s, retrieval.Step, []int{id}, len(s.tokens)+1)
	}
	p.want = len(sessions)
	return p
}

// chunkOf is a pass of a prompt's next chunk.
func chunkOf(s *Session, ids []int, total int) *pass {
	p := &pass{}
	p.open(s.e, s.e.phase(true))
	reading := retrieval.Chunk
	if len(s.tokens)+len(ids) == total {
		reading, p.want = retrieval.LastChunk, 1
	}
	p.add(s, reading, ids, total)
	return p
}

// runTogether takes passes through the layers in turn and returns each one's logits, a row a session; nil = it wants none.
func runTogether(t *testing.T, e *Engine, passes ...*pass) (out [][][]float32) {
	t.Helper()
	first, err := e.run(passes...)
	if err != nil {
		t.Fatal(err)
	}
	var kept []float32
	if first != nil {
		kept = slices.Clone(floats(first))
	}
	for i, p := range passes {
		x := kept
		if i > 0 {
			x = nil
			if p.hidden != nil {
				logits, err := p.logits()
				if err != nil {
					t.Fatal(err)
				}
				x = slices.Clone(floats(logits))
			}
		}
		var rows [][]float32
		for row := range slices.Chunk(x, e.m.Vocab) {
			rows = append(rows, row)
		}
		if len(rows) != p.want {
			t.Fatalf("pass %d: %d rows of logits, want %d", i, len(rows), p.want)
		}
		out = append(out, rows)
		from := 0
		for j, s := range p.sessions {
			n := p.kv.Rows[j].New
			for _, id := range p.ids[from : from+n] {
				s.tokens = append(s.tokens, int(id))
			}
			from += n
			s.past.Note(n, p.kv.Rows[j].Reading == retrieval.Step)
		}
	}
	return out
}

// TestPassesTogether: two passes that go through the layers in turn, two batches of steps or a prompt's chunks beside steps,
// compute what they compute one after the other, to the bit, and so does what their sessions read afterwards.
func TestPassesTogether(t *testing.T) {
	t.Parallel()
	prompts, next := [][]int{fakes.IDs(140, 1), fakes.IDs(171, 2), fakes.IDs(155, 3), fakes.IDs(96, 4)}, fakes.IDs(10, 5)
	for _, spec := range []string{"full", "snapkv:budget=50%", "quest:budget=48", "h2o:budget=60", "hillinfer:alpha=0.2,guess_from=1"} {
		for _, tiers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s tiers %v", spec, tiers), func(t *testing.T) {
				t.Parallel()
				open := func() *Engine {
					o := Options{Threads: 2, ChunkTokens: 32, Policy: spec}
					if tiers {
						o.Store, o.KVBudgetBytes = below(t, o), 200*4096
					}
					return small(t, o)
				}
				var want [4][][]float32
				for i, p := range prompts {
					want[i] = forced(t, open(), p, next)
				}
				e := open()
				var s []*Session
				for _, p := range prompts[:3] {
					s = append(s, opened(t, e, spec, p))
				}
				same := func(i, step int, got []float32) {
					t.Helper()
					if !slices.Equal(got, want[i][step]) {
						t.Fatalf("session %d, step %d: logits differ by %g", i, step, fakes.Worst([][]float32{got}, want[i][step:]))
					}
				}
				for step := range 4 { // two batches in turn, in either order
					a, b := passOf(e, s[:2], next[step]), passOf(e, s[2:], next[step])
					if step%2 == 0 {
						got := runTogether(t, e, a, b)
						same(0, step+1, got[0][0])
						same(1, step+1, got[0][1])
						same(2, step+1, got[1][0])
					} else {
						got := runTogether(t, e, b, a)
						same(2, step+1, got[0][0])
						same(0, step+1, got[1][0])
						same(1, step+1, got[1][1])
					}
				}
				late, err := e.NewSession(e.Policy()) // its prompt is read beside the others' steps
				if err != nil {
					t.Fatal(err)
				}
				defer late.Close()
				for step, first := 4, 0; first < len(prompts[3]); step++ {
					n := late.text.ChunkRows(len(prompts[3])-first, e.o.ChunkTokens)
					steps, chunk := passOf(e, s, next[step]), chunkOf(late, prompts[3][first:first+n], len(prompts[3]))
					first += n
					var got, read [][]float32
					if step%2 == 0 {
						out := runTogether(t, e, steps, chunk)
						got, read = out[0], out[1]
					} else {
						out := runTogether(t, e, chunk, steps)
						got, read = out[1], out[0]
					}
					for i := range s {
						same(i, step+1, got[i])
					}
					if first == len(prompts[3]) {
						same(3, 0, read[0])
					}
				}
				done := s[0].Tokens() - len(prompts[0])
				for step, id := range next[done:] {
					if err := e.DecodeBatch(append(s[:3:3], late), []int{id, id, id, next[step]}); err != nil {
						t.Fatal(err)
					}
					for i := range s {
						same(i, done+step+1, s[i].Logits())
					}
					same(3, step+1, late.Logits())
				}
				if err := e.kv.Check(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

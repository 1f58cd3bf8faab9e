package csdshim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// outcome is what came of one question of several.
type outcome struct {
	done   int // calls of Done
	err    error
	tokens int // whose scores came, all right
}

// ask asks one question a sequence about layer 1, in one message, and checks every score and the order of the tokens.
func ask(t *testing.T, c interface {
	ScoreMany(context.Context, []Question)
}, w *cache, seqs []uint64, layer int) []outcome {
	t.Helper()
	return askWithin(t, time.Minute, c, w, seqs, layer)
}

// askWithin is ask with a limit, for drives of which nothing else tells that an answer will not come.
func askWithin(t *testing.T, limit time.Duration, c interface {
	ScoreMany(context.Context, []Question)
}, w *cache, seqs []uint64, layer int) []outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, list := make([]outcome, len(seqs)), make([]Question, len(seqs))
	q := &Query{Codes: CodesInt8, Int8: bytesOf(w.shape.Width()), Block: 64, Shift: 5}
	for i, seq := range seqs {
		o := &out[i]
		list[i] = Question{Seq: seq, Layer: layer, Query: q, Done: func(_ Timing, err error) { o.done, o.err = o.done+1, err },
			Each: func(b *Block) error {
				for j, p := range b.Positions {
					if int(p) != o.tokens || b.Scores[j] != w.score(q, layer, int(p)) || o.done > 0 {
						return errWrong
					}
					o.tokens++
				}
				return nil
			}}
	}
	c.ScoreMany(ctx, list)
	return out
}

// TestManyPartly: of several questions in one message each ends once, whatever becomes of the others: those that were answered before the
// drive died, or a frame was damaged, stand; the rest fail and say why; one that the drive refuses, or whose caller has had enough,
// leaves the others answered.
func TestManyPartly(t *testing.T) {
	const tokens, frames = 192, 4 // of a question: three blocks of 64 tokens and its outcome
	for name, c := range map[string]struct {
		fault    *Fault
		answered int     // questions, the first
		errs     []error // of the others, one of these
	}{
		"nothing":                      {nil, 3, nil},
		"all refused":                  {&Fault{Kind: FaultFail}, 0, []error{ErrDrive}},
		"dies before the first":        {&Fault{Kind: FaultDisconnect}, 0, []error{ErrLost}},
		"dies in the second's blocks":  {&Fault{Kind: FaultDisconnect, Frames: frames + 2}, 1, []error{ErrLost}},
		"dies in the second's outcome": {&Fault{Kind: FaultDisconnect, Frames: 2*frames - 1}, 1, []error{ErrLost}},
		"dies between the answers":     {&Fault{Kind: FaultDisconnect, Frames: 2 * frames}, 2, []error{ErrLost}},
		"dies behind the last":         {&Fault{Kind: FaultDisconnect, Frames: 3 * frames}, 3, nil},
		"short block":                  {&Fault{Kind: FaultShort, Frames: frames}, 1, []error{ErrLost, ErrTimeout}},
		"short outcome":                {&Fault{Kind: FaultShort, Frames: 3*frames - 1}, 2, []error{ErrLost, ErrTimeout}},
		"garbage":                      {&Fault{Kind: FaultGarbage, Frames: frames + 1}, 1, []error{ErrLost, ErrTimeout}},
		"flipped":                      {&Fault{Kind: FaultFlip, Frames: 2 * frames}, 2, []error{ErrLost}},
		"an outcome twice":             {&Fault{Kind: FaultTwice, Frames: frames - 1}, 1, []error{ErrFrame}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDrive(t, t.TempDir(), nil)
			client := dial(t, serve(t, d), ClientOptions{})
			w := newCache(smallShape(CodesInt8, true), 3)
			write(t, client, w, 1, tokens/GroupTokens)
			more := []uint64{1, 2, 3}
			for _, seq := range more[1:] {
				copied(t, client, w, seq)
			}
			if c.fault != nil {
				d.faults.set(Faults{Seed: 1, Rules: []Fault{*c.fault}})
			}
			limit := time.Minute
			if slices.Contains(c.errs, ErrTimeout) {
				limit = 3 * time.Second // the questions before are answered by then on a busy machine too
			}
			for i, o := range askWithin(t, limit, client, w, more, 1) {
				if i < c.answered {
					if o.done != 1 || o.err != nil || o.tokens != tokens {
						t.Errorf("question %d was answered: %+v", i, o)
					}
					continue
				}
				known := false
				for _, err := range c.errs {
					known = known || errors.Is(o.err, err)
				}
				if o.done != 1 || !known || o.tokens > tokens || errors.Is(o.err, errWrong) {
					t.Errorf("question %d was not: %+v, want one of %v", i, o, c.errs)
				}
			}
		})
	}
}

// copied writes what a cache holds under another sequence.
func copied(t *testing.T, c *Client, w *cache, seq uint64) {
	t.Helper()
	if err := c.OpenSequence(t.Context(), seq, w.shape); err != nil {
		t.Fatal(err)
	}
	var batch []Group
	for _, g := range w.groups {
		batch = append(batch, g)
	}
	if _, err := c.WriteGroups(t.Context(), seq, batch); err != nil {
		t.Fatal(err)
	}
	w.tell(t, func(layer int, scales []float32) error {
		_, err := c.SetScales(t.Context(), seq, layer, scales)
		return err
	})
}

// TestManyRefusedAlone: a sequence that the drive does not have, a layer that there is not, and a caller that refuses what comes are the
// errors of their questions alone, and the connection goes on.
func TestManyRefusedAlone(t *testing.T) {
	d := openDrive(t, t.TempDir(), nil)
	c := dial(t, serve(t, d), ClientOptions{})
	w := newCache(smallShape(CodesInt8, true), 3)
	write(t, c, w, 1, 12)
	copied(t, c, w, 2)
	for range 3 {
		for i, o := range ask(t, c, w, []uint64{1, 7, 2}, 1) {
			if i == 1 && (o.done != 1 || !errors.Is(o.err, ErrNotFound) || o.tokens != 0) || i != 1 && (o.done != 1 || o.err != nil || o.tokens != 192) {
				t.Errorf("question %d: %+v", i, o)
			}
		}
	}
	for i, o := range ask(t, c, w, []uint64{1, 2}, 3) {
		if o.done != 1 || !errors.Is(o.err, ErrRequest) {
			t.Errorf("layer 3 of 3, question %d: %+v", i, o)
		}
	}
	enough, ends := errors.New("enough"), make([]error, 3)
	q := &Query{Codes: CodesInt8, Int8: bytesOf(w.shape.Width()), Block: 64, Shift: 5}
	var list []Question
	for i, seq := range []uint64{1, 2, 1} {
		list = append(list, Question{Seq: seq, Layer: 0, Query: q, Done: func(_ Timing, err error) { ends[i] = err }, Each: func(*Block) error {
			if i == 1 {
				return enough
			}
			return nil
		}})
	}
	if c.ScoreMany(t.Context(), list); ends[0] != nil || !errors.Is(ends[1], enough) || ends[2] != nil {
		t.Errorf("the second had enough: %v", ends)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if c.ScoreMany(cancelled, list); fmt.Sprint(ends) == "[<nil> <nil> <nil>]" || !errors.Is(ends[2], context.Canceled) {
		t.Errorf("nobody wants an answer: %v", ends)
	}
	if o := ask(t, c, w, []uint64{2, 1}, 1); o[0].err != nil || o[1].err != nil || o[1].tokens != 192 {
		t.Errorf("afterwards: %+v", o)
	}
}

// TestSessionAsksMany: asked in process, each question of several hears what one at the drive's socket does, and of its own failure alone.
func TestSessionAsksMany(t *testing.T) {
	const tokens = 192
	d := openDrive(t, t.TempDir(), nil)
	client := dial(t, serve(t, d), ClientOptions{})
	w := newCache(smallShape(CodesInt8, true), 3)
	write(t, client, w, 1, tokens/GroupTokens)
	copied(t, client, w, 2)
	s := d.Connect(client.Owner(), 0)
	defer s.Disconnect()
	for i, o := range ask(t, s, w, []uint64{1, 9, 2}, 1) {
		if want := []int{tokens, 0, tokens}[i]; o.done != 1 || o.tokens != want || errors.Is(o.err, ErrNotFound) != (i == 1) || (o.err == nil) != (i != 1) {
			t.Errorf("question %d: %+v, want %d tokens", i, o, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	said, enough := make([]error, 2), errors.New("enough")
	q := &Query{Codes: CodesInt8, Int8: bytesOf(w.shape.Width()), Block: 64, Shift: 5}
	for name, x := range map[string]struct {
		ctx  context.Context
		want error
	}{"nobody wants it": {ended, context.Canceled}, "the asker has had enough": {t.Context(), enough}} {
		var list []Question
		for i := range said {
			list = append(list, Question{Seq: 1, Layer: 1, Query: q, Each: func(*Block) error { return enough }, Done: func(_ Timing, err error) { said[i] = err }})
		}
		if s.ScoreMany(x.ctx, list); !errors.Is(said[0], x.want) || !errors.Is(said[1], x.want) {
			t.Errorf("%s: %v", name, said)
		}
	}
	s.ScoreMany(t.Context(), nil)
}

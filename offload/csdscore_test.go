package offload

import (
	"errors"
	"testing"

	"terrace/csdshim"
	"terrace/internal/clock"
)

// manyAnswers asks one question a sequence about layer 0 in one message: of each, how many tokens came in order with their scores, the
// error, and how often it ended.
type manyAnswers struct {
	tokens, ended int
	err           error
}

func askMany(t *testing.T, c *CSD, seqs ...uint64) []manyAnswers {
	t.Helper()
	q := &csdshim.Query{Codes: csdshim.CodesInt8, Int8: make([]int8, 64), Block: 32}
	q.Int8[0] = 1
	out, list := make([]manyAnswers, len(seqs)), make([]csdshim.Question, len(seqs))
	for i, seq := range seqs {
		a := &out[i]
		list[i] = csdshim.Question{Seq: seq, Query: q, Done: func(_ csdshim.Timing, err error) { a.ended, a.err = a.ended+1, err },
			Each: func(b *csdshim.Block) error {
				for j, p := range b.Positions {
					if int(p) != a.tokens || b.Scores[j] != float32(p/16) {
						t.Errorf("sequence %d: position %d, want %d, score %v", seq, p, a.tokens, b.Scores[j])
					}
					a.tokens++
				}
				return nil
			}}
	}
	c.ScoreMany(t.Context(), list)
	return out
}

// TestScoreManyPartly: of a batch's questions in one message those that were answered stand; the others are asked again, each by itself,
// and no token comes twice, wherever in the reply the drive broke off. A text whose part fails for good is the only one that does. Where
// the drive stays away the answers that came still stand, and the others say that it is gone.
func TestScoreManyPartly(t *testing.T) {
	const groups, frames = 6, 4 // of a question: three blocks of 32 tokens and its outcome
	shape := csdShape()
	open := func(t *testing.T, faults ...csdshim.Fault) (*csdDrive, *CSD) {
		drive := newCSDDrive(t)
		drive.stop()
		drive.faults = csdshim.Faults{Seed: 1, Rules: faults}
		drive.start()
		c, err := OpenCSD(t.Context(), drive.socket, shape, CSDOptions{Codes: csdshim.CodesInt8, Clock: clock.NewJumping()})
		if err != nil {
			t.Fatal(err)
		}
		for seq := uint64(1); seq <= 3; seq++ {
			var recs []Record
			for g := range int32(groups) {
				recs = append(recs, csdRecord(shape, seq, 0, g))
			}
			if err := errors.Join(c.Write(t.Context(), recs), c.SetScales(t.Context(), seq, 0, []float32{0.25, 0.25})); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _ = c.Close() })
		return drive, c
	}
	for name, k := range map[string]struct {
		fault csdshim.Fault
		again int64 // questions that were asked a second time
	}{
		"all fail":            {csdshim.Fault{Kind: csdshim.FaultFail, On: "score", Times: 1}, 3},
		"dies at once":        {csdshim.Fault{Kind: csdshim.FaultDisconnect, On: "score", Times: 1}, 3},
		"dies in a block":     {csdshim.Fault{Kind: csdshim.FaultDisconnect, On: "score", Times: 1, Frames: frames + 1}, 2},
		"dies between two":    {csdshim.Fault{Kind: csdshim.FaultDisconnect, On: "score", Times: 1, Frames: 2 * frames}, 1},
		"dies behind all":     {csdshim.Fault{Kind: csdshim.FaultDisconnect, On: "score", Times: 1, Frames: 3 * frames}, 0},
		"an outcome is wrong": {csdshim.Fault{Kind: csdshim.FaultFlip, On: "score", Times: 1, Frames: 2*frames - 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := open(t, k.fault)
			for i, a := range askMany(t, c, 1, 2, 3) {
				if a.ended != 1 || a.err != nil || a.tokens != groups*16 {
					t.Errorf("sequence %d: %+v", i+1, a)
				}
			}
			if n := c.Stats().Retries; n != k.again {
				t.Errorf("%d questions asked again, want %d", n, k.again)
			}
		})
	}
	t.Run("one is lost", func(t *testing.T) {
		drive, c := open(t)
		if err := drive.drive.Connect(c.owner, 0).Drop(2, 0); err != nil {
			t.Fatal(err)
		}
		for i, a := range askMany(t, c, 1, 2, 3) {
			if lost := i == 1; a.ended != 1 || lost != (a.err != nil) || lost && !errors.Is(a.err, ErrTier) || !lost && a.tokens != groups*16 {
				t.Errorf("sequence %d: %+v", i+1, a)
			}
		}
	})
	t.Run("gone", func(t *testing.T) {
		drive, c := open(t, csdshim.Fault{Kind: csdshim.FaultDisconnect, On: "score", Frames: frames})
		first := true
		q := &csdshim.Query{Codes: csdshim.CodesInt8, Int8: make([]int8, 64), Block: 32}
		ends := make([]error, 3)
		var list []csdshim.Question
		for i := range ends {
			list = append(list, csdshim.Question{Seq: uint64(i + 1), Query: q, Each: func(*csdshim.Block) error { return nil }, Done: func(_ csdshim.Timing, err error) {
				if ends[i] = err; first {
					first = false
					drive.stop() // between the first answer and the second
				}
			}})
		}
		if c.ScoreMany(t.Context(), list); ends[0] != nil || !errors.Is(ends[1], csdshim.ErrLost) || !errors.Is(ends[2], csdshim.ErrLost) {
			t.Errorf("%v", ends)
		}
	})
}

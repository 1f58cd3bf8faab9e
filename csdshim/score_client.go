package csdshim

import (
	"context"
	"fmt"

	"terrace/csdshim/wire"
)

// Question is one of several that are asked in one message.
type Question struct {
	Seq   uint64
	Layer int
	Query *Query
	// Each is called with one block after another while they stream in, as by Client.Score. An error ends the question.
	Each func(*Block) error
	// Done is called once, when the question has ended: with what it took, or why it failed.
	Done func(Timing, error)
}

// scoreFrame is a frame that came for a question: a block, or the question's outcome.
type scoreFrame struct {
	question int
	outcome  bool
	payload  []byte
}

// asked is a question under way.
type asked struct {
	Question
	limit int
	last  int32
	err   error // of Each
	ended bool
}

func (a *asked) end(t Timing, err error) {
	if !a.ended {
		a.ended = true
		a.Done(t, err)
	}
}

// ScoreMany asks several questions in one message; the drive answers them one after another, as Score does each. All calls of Each and
// Done are made by the caller's goroutine; every question's Done is called before ScoreMany returns.
func (c *Client) ScoreMany(ctx context.Context, questions []Question) {
	list, block := make([]asked, len(questions)), Block{}
	var m wire.ScoreMany
	for i, q := range questions {
		list[i] = asked{Question: q, limit: q.Query.Limit, last: -1}
		if list[i].limit == 0 {
			list[i].limit = maxPosition + 1
		}
		m.Questions = append(m.Questions, wire.Score{Seq: q.Seq, Layer: q.Layer, Query: *q.Query})
	}
	take := func(f scoreFrame) error {
		if f.question >= len(list) || list[f.question].ended {
			return fmt.Errorf("csdshim: an answer to question %d of %d, which nobody waits for: %w", f.question, len(list), ErrFrame)
		}
		return c.takeAnswer(&list[f.question], f, &block)
	}
	err := c.stream(ctx, &call{kind: wire.TypeScoreMany}, m.Append(nil), take)
	if err == nil {
		err = fmt.Errorf("csdshim: the drive ended without an answer: %w", ErrFrame)
	}
	err = c.explain(ctx, "score", err)
	for i := range list {
		list[i].end(Timing{}, err)
	}
}

// takeAnswer hands a frame to its question. The error is one of the protocol.
func (c *Client) takeAnswer(a *asked, f scoreFrame, block *Block) error {
	if !f.outcome {
		if a.err != nil {
			return nil // of what follows nothing is wanted
		}
		last, err := wire.ParseScores(f.payload, a.last, a.limit, block, func(b *Block) error {
			a.err = a.Each(b)
			return a.err
		})
		if a.last = last; a.err != nil {
			return nil
		}
		return err
	}
	m, err := wire.ParseAnswered(f.payload)
	switch {
	case err != nil:
		return err
	case a.err != nil:
		a.end(Timing{}, fmt.Errorf("csdshim: %s: score: %w", c.socket, a.err))
	case m.Failed:
		told := remote(m.Failure)
		a.end(Timing{}, fmt.Errorf("csdshim: %s: score: %w", c.socket, told))
	default:
		a.end(m.Timing, nil)
	}
	return nil
}

// stream does a request whose reply are frames of scores, and gives each to take, whose error ends it, at the drive too.
func (c *Client) stream(ctx context.Context, k *call, payload []byte, take func(scoreFrame) error) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	k.scores = make(chan scoreFrame, maxScoreFrames)
	id, err := c.start(ctx, k, payload)
	if err != nil {
		return err
	}
	for {
		select {
		case f := <-k.scores:
			if err := take(f); err != nil {
				cancel()
				_, _ = c.wait(ctx, id, k)
				return err
			}
		case <-k.result:
			for err == nil && len(k.scores) > 0 { // what came before the end stands, whatever the end is
				err = take(<-k.scores)
			}
			if err == nil {
				err = k.err
			}
			return err
		case <-ctx.Done():
			if _, err := c.wait(ctx, id, k); err != nil {
				return err
			}
			return ctx.Err()
		}
	}
}

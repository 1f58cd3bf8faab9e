package offload

import (
	"context"
	"slices"

	"terrace/csdshim"
)

// answering is a question under way: a second attempt goes on where the first ended. Positions rise, and a token's score is the same each
// time. A drive that was restarted in between has forgotten which tokens are hot, and scores those too.
type answering struct {
	csdshim.Question
	last    int32
	refused error // by Each
	rest    csdshim.Block
	failed  error // of the first attempt, where that was one of several questions
}

// fresh passes on what of a block has not come before.
func (a *answering) fresh(b *csdshim.Block) error {
	n, _ := slices.BinarySearch(b.Positions, a.last+1)
	if n == len(b.Positions) {
		return nil
	}
	a.last = b.Positions[len(b.Positions)-1]
	a.rest.Positions, a.rest.Scores = b.Positions[n:], b.Scores[n:]
	a.refused = a.Each(&a.rest)
	return a.refused
}

// ask asks a question by itself, as often as retries permit; a first attempt may have been made.
func (c *CSD) ask(ctx context.Context, a *answering) (t csdshim.Timing, err error) {
	err = c.again(ctx, func() error {
		if a.refused != nil {
			return a.refused
		}
		if first := a.failed; first != nil {
			a.failed = nil
			return first
		}
		client, err := c.sequence(ctx, a.Seq)
		if err != nil {
			return err
		}
		if t, err = client.Score(ctx, a.Seq, a.Layer, a.Query, a.fresh); err != nil {
			return c.suspect(client, err)
		}
		return nil
	})
	return t, err
}

// Score has the drive score the cold tokens of a layer (csdshim.Client.Score). A retry goes on where the first answer ended.
func (c *CSD) Score(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (csdshim.Timing, error) {
	return c.ask(ctx, &answering{Question: csdshim.Question{Seq: seq, Layer: layer, Query: q, Each: each}, last: -1})
}

// ScoreMany asks several questions in one message (csdshim.Client.ScoreMany). Those that fail and may succeed a second time are asked
// again one by one, behind the others.
func (c *CSD) ScoreMany(ctx context.Context, questions []csdshim.Question) {
	list := make([]answering, len(questions))
	for i, q := range questions {
		list[i] = answering{Question: q, last: -1}
	}
	client, err := c.all(ctx, questions) // where that fails each is asked alone, and says why
	sent := make([]csdshim.Question, len(list))
	for i := range list {
		a := &list[i]
		sent[i] = csdshim.Question{Seq: a.Seq, Layer: a.Layer, Query: a.Query, Each: a.fresh, Done: func(t csdshim.Timing, err error) {
			if a.failed = err; err == nil {
				a.Done(t, nil)
			}
		}}
	}
	if err == nil {
		client.ScoreMany(ctx, sent)
	}
	for i := range list {
		a := &list[i]
		if err == nil && a.failed == nil {
			continue // answered
		}
		if a.failed != nil {
			a.failed = c.suspect(client, a.failed)
		}
		a.Done(c.ask(ctx, a))
	}
}

// all is the client, with the sequences of all questions open on it. The error is the first sequence's that could not be opened.
func (c *CSD) all(ctx context.Context, questions []csdshim.Question) (client Link, err error) {
	for i, q := range questions {
		now, err := c.sequence(ctx, q.Seq)
		if err != nil {
			return nil, err
		}
		if i > 0 && now != client {
			return nil, csdshim.ErrLost // the drive was dialled again meanwhile
		}
		client = now
	}
	return client, nil
}

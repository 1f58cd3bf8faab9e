package serve

import (
	"context"
	"slices"
	"time"

	"terrace/engine"
	"terrace/engine/draft"
	"terrace/engine/schedule"
	"terrace/policy"
	"terrace/tokenizer"
)

// job is a request in the loop.
type job struct {
	r       *Request
	ctx     context.Context
	reply   *Reply
	began   time.Time // the first prompt's first part; zero = none yet
	first   time.Time // the first token
	left    int       // choices that have not ended
	started bool
	over    bool // nothing more is done for it
}

// sequence is one choice of a request: a text in progress.
type sequence struct {
	id      int64
	job     *job
	choice  int
	prompt  []int
	under   *policy.Spec
	session *engine.Session // nil = waits, or was swapped out

	vocab int

	progress
	guessing
	said
	beginnings
	standing
}

// progress is how far the session has come.
type progress struct {
	fresh   bool // the session has read nothing yet
	kept    bool // swapped out with its session, which is suspended
	reading *engine.PromptReading
	gen     *engine.Generation
	next    int   // token that the next step reads
	again   []int // of a text that was swapped out: generated tokens that are still to be read again
	behind  []int // generated tokens that the reading in progress has behind the prompt (turn)
}

// guessing is reading ahead with guesses, while the text decodes alone.
type guessing struct {
	ahead     *engine.Speculator // reads guesses with its tokens, where it decodes alone; nil = not yet
	drafter   draft.Drafter      // ahead's
	guessed   engine.Speculation // what the metrics have of it
	noGuesses bool               // they cannot be taken back in its session
}

// said is what has been made since the last event, and the forms in which it is told.
type said struct {
	piece   string        // text that has become certain since the last event
	tokens  []Token       // since the last event
	told    int           // of tokens, in the accounts
	top     *Ranker       // nil = no logprobs wanted
	echo    []Token       // of the prompt, where it is echoed with logprobs
	thought *thoughtWatch // nil = nobody asks
	pieces  *tap
}

// beginnings is what the prompt has in common with the store and with others.
type beginnings struct {
	prefix engine.Prefix      // what a store has of the prompt, on its way
	found  engine.Prefix      // the same, once the session has it
	finds  bool               // loop.asks
	common map[int64]*sharing // with other sequences, by id
	read   time.Time          // its prompt was read to the end; zero = not yet
}

// standing is how the sequence fares in the loop.
type standing struct {
	started bool
	counted bool      // its prompt is in the accounts
	last    time.Time // of its last token
	away    time.Time // swapped out since; zero = it is not
	waits   int64     // loop.left when it was swapped out for want of room beside others; it runs again when one has left. -1 = it was not
}

// view is what the scheduler knows of it, where so many choices have left the loop.
func (q *sequence) view(e *engine.Engine, left int64) schedule.Request {
	read := len(q.prompt)
	v := schedule.Request{Stuck: q.waits == left, Kept: q.kept, ID: q.id, Key: q.job.r.key, Unread: read, Extra: max(0, e.KVTokens(read+1)-read-e.PageTokens())}
	if q.under.Causal() { // else a policy keeps fewer
		v.Most = e.KVTokens(min(read+max(q.job.r.MaxTokens, 1)-1, e.Options().Context)) // the last token is not read
	}
	if q.wantsRows() {
		v.Part = echoRowsTokens
	}
	switch {
	case q.reading != nil:
		v.Held, v.Unread, v.Least = q.session.Tokens(), q.reading.Left(), q.reading.LeastTokens()
	case q.session != nil && !q.fresh:
		v.Held, v.Unread = q.session.Tokens(), 0
	case q.session == nil && q.gen != nil: // swapped out
		v.Held, v.Unread = len(q.prompt)+len(q.again), 0
	}
	return v
}

// open gives the sequence a session, and has the store look for its prompt.
func (q *sequence) open(e *engine.Engine, o *Options) (err error) {
	if q.session, err = e.NewSession(q.under); err != nil {
		return err
	}
	q.fresh = true
	if c := e.PrefixCache(); c != nil && q.under.Causal() && !q.wantsRows() {
		q.prefix = c.Lookup(q.job.ctx, q.prompt, q.under, q.job.r.salt())
	}
	if q.gen != nil {
		return nil // it was swapped out: what it had generated is read again
	}
	r := engine.Request{IDs: q.prompt, MaxTokens: q.job.r.MaxTokens, MinTokens: q.job.r.MinTokens, HoldStops: true, Sampler: q.job.r.Sampler, Breakers: q.job.r.breakers, Bias: q.job.r.Bias,
		Stops: q.job.r.Stops, StopIDs: q.job.r.StopIDs, IgnoreEOS: q.job.r.IgnoreEOS,
		IsEnd: o.Tokenizer.IsEOG, Text: q.pieces, Started: q.job.r.received,
		OnText: func(piece string) error { q.piece += piece; return nil }}
	if m := q.job.r.Machine; m != nil {
		r.Constrain = m.Start()
	}
	r.Sampler.Seed += uint64(q.choice % max(1, q.job.r.Choices))
	if r.MaxTokens >= 0 {
		r.MaxTokens = min(r.MaxTokens, e.Options().Context-len(q.prompt))
	}
	if q.gen, err = engine.NewGeneration(r); err != nil {
		return err
	}
	if b := q.job.r.thought; b != nil {
		q.thought = b.watch()
		return q.closeThought()
	}
	return nil
}

// thoughts is how many tokens of thoughts have come since it was last asked.
func (q *sequence) thoughts() int {
	if q.thought == nil {
		return 0
	}
	n := q.thought.used - q.thought.told
	q.thought.told = q.thought.used
	return n
}

// closeThought has the text go on with what closes a thought that has been long enough.
func (q *sequence) closeThought() error {
	ids, err := q.thought.closing()
	if err == nil && len(ids) > 0 {
		q.gen.Force(ids)
	}
	return err
}

// begin takes what the store has of the prompt, and begins to read the rest. After an error it may be called again, unless the
// session had to be closed: then it is nil.
func (q *sequence) begin() error {
	if p := q.prefix; p != nil {
		q.prefix, q.found = nil, p
		if _, err := p.Resume(q.job.ctx, q.session); err != nil {
			q.close()
			return err
		}
	}
	var hooks engine.PrefillHooks
	if q.wantsRows() {
		hooks.Each = q.echoRows
	}
	reading, err := q.session.BeginPrompt(q.prompt[q.session.Tokens():], hooks)
	if err != nil {
		return err
	}
	if q.reading, q.fresh = reading, false; hooks.Each != nil {
		q.echo = make([]Token, len(q.prompt))
	}
	return nil
}

// turn begins to read the text again, in parts, where its next token brings it to a length at which the model turns all positions again.
func (q *sequence) turn() error {
	made := q.session.IDs()[len(q.prompt):]
	reading, steps, err := q.session.ReadAgain()
	if err != nil {
		q.again = slices.Concat(made, []int{q.next}, q.again)
		q.close()
		return err
	}
	q.reading, q.behind, q.again = reading, made[:len(made)-len(steps)], slices.Concat(steps, []int{q.next}, q.again)
	return nil
}

// wantsRows reports whether the logits of the whole prompt are wanted.
func (q *sequence) wantsRows() bool { return q.top != nil && q.job.r.Echo && !q.counted }

// decodes reports whether the next thing that a sequence does is to read a token of its answer that nobody has read.
func decodes(q *sequence) bool {
	return q.session != nil && q.reading == nil && !q.fresh && len(q.again) == 0
}

// close gives the session back.
func (q *sequence) close() {
	if q.prefix != nil {
		q.prefix.Close()
		q.prefix = nil
	}
	if q.session != nil {
		s := q.session
		q.dropGuesses()
		q.session, q.reading, q.fresh, q.kept = nil, nil, false, false
		s.Close()
	}
}

// step chooses the next token from the session's logits, and notes what came of it; more says that the token is to be read.
func (q *sequence) step(context int) (more bool, err error) {
	if len(q.again) > 0 {
		q.next, q.again = q.again[0], q.again[1:]
		return true, nil
	}
	if q.job.r.MaxTokens == 0 {
		q.gen.End("length")
		return false, nil
	}
	if q.top != nil {
		q.top.Rank(q.session.Logits())
	}
	q.pieces.last = ""
	forced := q.gen.Forced()
	q.next, more, err = q.gen.Step(q.session)
	if err != nil || q.next < 0 {
		return false, err
	}
	if q.thought != nil {
		q.thought.read(q.pieces.last, forced > 0)
		if more && q.gen.Forced() == 0 {
			if err := q.closeThought(); err != nil {
				return false, err
			}
		}
	}
	t := Token{ID: q.next, Text: q.pieces.last}
	if q.top != nil {
		q.top.Fill(&t)
	}
	q.tokens = append(q.tokens, t)
	if more && q.session.Tokens()+1 >= context {
		q.gen.End("context")
		more = false
	}
	return more, nil
}

// event is what has come since the last one; of a choice that has ended the last.
func (q *sequence) event(more bool) Event {
	e := Event{Choice: q.choice}
	if !more {
		res := q.gen.Result() // which hands out text that was held back
		switch most := q.job.r.MaxTokens; {
		case res.Finish == "stop":
			e.Finish, e.Stop = FinishStop, res.Stop
		case res.Finish == string(CutMemory):
			e.Finish, e.Cut = FinishLength, CutMemory
		case most < 0 || len(res.IDs) < most:
			e.Finish, e.Cut = FinishLength, CutContext
		default:
			e.Finish = FinishLength
		}
	}
	e.Text, e.Tokens = q.piece, q.tokens
	q.piece, q.tokens = "", nil
	return e
}

// suspend leaves the session's KV and state on the tier below, for the time that the sequence is swapped out; false where they cannot
// stay there.
func (q *sequence) suspend() bool {
	if q.session == nil || q.fresh || q.reading != nil || q.settle() != nil {
		return false
	}
	q.dropGuesses()
	q.kept = q.session.Suspend() == nil
	return q.kept
}

// swapOut gives the session back; the text is read again as it was read, when the sequence runs again.
func (q *sequence) swapOut() {
	if !q.counted {
		q.found = nil
	}
	switch {
	case q.reading != nil:
		q.again, q.behind = slices.Concat(q.behind, q.again), nil
	case q.session != nil && !q.fresh:
		q.again = slices.Concat(q.session.IDs()[len(q.prompt):], []int{q.next}, q.again)
	}
	q.close()
}

// tap is a detokenizer that remembers the text of the last token.
type tap struct {
	*tokenizer.Detokenizer
	last string
}

// Push implements engine.Text.
func (t *tap) Push(id int) string {
	t.last = t.Detokenizer.Push(id)
	return t.last
}

package engine

import "terrace/retrieval"

// Part is tokens of a prompt that is being read.
type Part struct {
	Reading *PromptReading
	Tokens  int
}

// Rides reports whether the session's steps may share a pass with prompts of others (Advance): the backend computes rows of both
// alike, no policy acts on the text, and its KV is all in host memory.
func (s *Session) Rides() bool { return s.rides() && !s.Turns(1) }

func (s *Session) rides() bool {
	return s.e.mixes && s.text.Plain() && s.arriving == nil && !s.past.Lost
}

// Rides reports whether the prompt's next part may share a pass with steps of others.
func (r *PromptReading) Rides() bool { return r.hooks.Each == nil && r.s.rides() }

// Advance reads one token in each of several sessions, and parts of the prompts of others beside them, in one pass: each weight is
// read and unpacked once for all rows. All must ride, and none may be given twice. What each computes is what DecodeBatch and Read
// compute, bit for bit; of a part no more than a chunk is read. The errors are the sessions', then the parts'; nil = it went
// on. Whoever has one is as before.
func (e *Engine) Advance(sessions []*Session, ids []int, parts []Part) []error {
	p, errs, at := &e.pass, make([]error, len(sessions)+len(parts)), map[*Session]int{}
	p.open(e, e.phase(true))
	p.shared = true
	for _, reading := range [...]retrieval.Reading{retrieval.Chunk, retrieval.LastChunk} { // whose logits are wanted comes behind
		for i, part := range parts {
			r := part.Reading
			n := min(max(part.Tokens, r.LeastTokens()), r.Left(), e.o.ChunkTokens, r.s.toBorder())
			if (n == r.Left()) != (reading == retrieval.LastChunk) {
				continue
			}
			p.add(r.s, reading, r.ids[r.read:r.read+n], len(r.s.tokens)+r.Left())
			at[r.s] = len(sessions) + i
		}
	}
	for i, s := range sessions {
		if errs[i] = s.fits(1); errs[i] == nil {
			p.add(s, retrieval.Step, ids[i:i+1], len(s.tokens)+1)
			at[s] = i
		}
	}
	logits, err := e.run(p)
	for _, f := range p.failed {
		errs[at[f.s]] = f.err
	}
	if err != nil {
		for _, s := range p.sessions {
			errs[at[s]] = err
		}
		return errs
	}
	if logits != nil {
		x, v, first := floats(logits), e.m.Vocab, len(p.sessions)-logits.Shape()[0]
		e.pool.Run(len(p.sessions)-first, func(_, i int) {
			s := p.sessions[first+i]
			s.logits = append(s.logits[:0], x[i*v:(i+1)*v]...)
		})
	}
	for i, s := range p.sessions {
		if j := at[s]; j >= len(sessions) {
			errs[j] = parts[j-len(sessions)].Reading.readShared(p.kv.Rows[i].New)
		} else {
			s.tokens = append(s.tokens, ids[j])
			s.past.Note(1, true)
		}
	}
	return errs
}

// readShared notes that a shared pass has read n tokens more.
func (r *PromptReading) readShared(n int) error {
	r.s.tokens = append(r.s.tokens, r.ids[r.read:r.read+n]...)
	if r.s.chunked != nil {
		r.s.chunked()
	}
	if r.advance(n); r.Left() > 0 {
		return nil
	}
	r.s.chunked = nil
	r.s.past.Note(len(r.ids), false)
	return r.s.e.CheckModel()
}

package engine

import (
	"errors"

	"terrace/retrieval"
)

// goBack is Rewind of a text on which no policy acts to n tokens, from a position at or before it where the state of recurrent layers is
// known: tokens from there on are read again as they were read.
func (s *Session) goBack(at, n int) error {
	if err := s.text.Truncate(int32(at)); err != nil {
		return err
	}
	again, reads := s.tokens[at:n:n], s.past.Part(at, n)
	s.tokens, s.logits = s.tokens[:at], s.logits[:0]
	s.past.Cut(at)
	for _, r := range reads {
		if err := s.readAgain(again[:r.Tokens], r.Steps); err != nil {
			return err
		}
		again = again[r.Tokens:]
	}
	s.dropLogits()
	s.logits = s.logits[:0]
	return nil
}

// backTo takes back what a pass of steps has read beyond the first n tokens, which the session's are. Where the state of recurrent layers
// is known only before that pass, the tokens that stay are read again, in one pass of the same arithmetic.
func (s *Session) backTo(n int) error {
	at := int(s.Sequence().States().Before(int32(n)))
	if err := s.text.Truncate(int32(at)); err != nil || at == n {
		return err
	}
	ids, logits := s.tokens[at:n:n], s.logits
	s.tokens = s.tokens[:at]
	e, p := s.e, &s.e.pass
	p.open(e, e.phase(false))
	p.add(s, retrieval.Step, ids, len(s.tokens)+1)
	for i := range ids {
		p.rows.Len[i] = int32(s.turnLength(len(s.tokens) + 1 + i))
	}
	_, err := e.run(p)
	if err == nil && len(p.failed) > 0 {
		err = p.failed[0].err
	}
	if err != nil {
		s.past.Cut(at)
		return errors.Join(err, s.lostSteps(ids))
	}
	s.tokens, s.logits = append(s.tokens, ids...), logits
	return nil
}

// lostSteps reads tokens once more one at a time, where reading them together failed.
func (s *Session) lostSteps(ids []int) error {
	for _, id := range ids {
		if err := s.Decode(id); err != nil {
			return err
		}
	}
	return nil
}

// saveStates keeps the state of recurrent layers where a text is likely to be taken back to: at the end of a chunk of its prompt.
func (s *Session) saveStates() {
	if s.e.cache.Recurrent() >= 0 && s.text.Causal() {
		s.Sequence().States().Save()
	}
}

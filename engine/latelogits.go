package engine

import (
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"terrace/model"
)

// lateLogits are the logits of a step that still lie where the backend computed them: a greedy step asks for the likeliest
// token there, and moves 8 bytes a row instead of a number a token of the vocabulary. Who wants them all gets them then.
type lateLogits struct {
	t  *tensor.Dense // [len(of), V]
	of []*Session    // the session of each row; nil = nobody wants it any more
}

// postpone leaves a step's logits on the device, if the backend can choose there; each session's are a row.
func (e *Engine) postpone(out *tensor.Dense, sessions []*Session) bool {
	if e.chooser == nil || out.Shape()[0] != len(sessions) {
		return false
	}
	if _, remote := out.Engine().(model.Remote); !remote {
		return false
	}
	e.late.t, e.late.of = out, append(e.late.of[:0], sessions...)
	for _, s := range sessions {
		s.late = true
	}
	return true
}

// computeLogits is the backend's Logits. What it overwrites is fetched first for sessions that have not looked at it, those of
// this pass excepted.
func (e *Engine) computeLogits(p *model.Pass, hidden *tensor.Dense, sessions []*Session) (*tensor.Dense, error) {
	for _, s := range sessions {
		s.dropLate()
	}
	for _, s := range e.late.of {
		if s != nil {
			if err := e.fetchLate(); err != nil {
				return nil, err
			}
			break
		}
	}
	return e.backend.Logits(p, hidden)
}

// dropLate forgets logits that nobody has looked at.
func (s *Session) dropLate() {
	if s.late {
		s.e.late.of[s.lateRow()], s.late, s.logits = nil, false, s.logits[:0]
	}
}

// lateRow is the session's row of the late logits.
func (s *Session) lateRow() int {
	for i, x := range s.e.late.of {
		if x == s {
			return i
		}
	}
	panic("engine: late logits of no row")
}

// fetchLate brings the late logits to the sessions that may still want them.
func (e *Engine) fetchLate() error {
	return guarded(func() error {
		x, v := floats(e.late.t), e.m.Vocab
		for i, s := range e.late.of {
			if s != nil {
				s.logits, s.late = append(s.logits[:0], x[i*v:(i+1)*v]...), false
			}
		}
		e.late = lateLogits{of: e.late.of[:0]}
		return nil
	})
}

// fetched is the session's logits, brought to the host if they are not there.
func (s *Session) fetched() ([]float32, error) {
	if s.late {
		if err := s.e.fetchLate(); err != nil {
			return nil, err
		}
	}
	return s.logits, nil
}

// Logits are the logits [V] after the last token; they hold until the next call. Where a device fails to deliver them they are
// NaN.
func (s *Session) Logits() []float32 {
	x, err := s.fetched()
	if err == nil {
		return x
	}
	x = make([]float32, s.e.m.Vocab)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	return x
}

// choose draws the next token; where the sampler is greedy and the logits lie on a device, there.
func (s *Session) choose(sampler *model.Sampler) (int, error) {
	if s.late && sampler.Greedy() {
		return s.likeliest()
	}
	logits, err := s.fetched()
	if err != nil {
		return 0, err
	}
	if err := CheckFinite(logits); err != nil {
		return 0, err
	}
	return sampler.Next(logits, s.tokens), nil
}

// likeliest asks the device for the token of a late row.
func (s *Session) likeliest() (id int, err error) {
	row := s.lateRow()
	err = guarded(func() error {
		ids, finite, err := s.e.chooser.Likeliest()
		if err != nil {
			return err
		}
		if !finite[row] {
			return fmt.Errorf("engine: %w (%s)", ErrNotFinite, notFiniteHint)
		}
		id = int(ids[row])
		return nil
	})
	return id, err
}

package draft

import (
	"fmt"

	"terrace/model"
)

// Session is a text that a smaller model reads; engine.NewDraftModel makes one of an engine's.
type Session interface {
	IDs() []int // read so far
	Context() int
	Rewind(n int) error
	Read(ids []int) error // as a prompt
	Decode(id int) error  // as one more token
	Choose(s *model.Sampler) (id int, err error)
	Close()
}

// Model guesses what a smaller model with the same vocabulary would choose greedily.
type Model struct {
	name   string
	s      Session
	tokens []int
	greedy *model.Sampler
}

// NewModel returns a drafter on a session, which it closes.
func NewModel(name string, s Session) *Model {
	return &Model{name: name, s: s, greedy: model.NewSampler(model.SamplerOptions{})}
}

// Name implements Drafter.
func (d *Model) Name() string { return "draft=" + d.name }

// Close implements Drafter.
func (d *Model) Close() error {
	d.s.Close()
	return nil
}

// Look implements Drafter: a model always has a guess, up to the end of its context.
func (d *Model) Look(tokens []int) int {
	d.tokens = tokens
	if len(tokens) >= d.s.Context() {
		return -1
	}
	return 0
}

// Draft implements Drafter.
func (d *Model) Draft(dst []int, n int) ([]int, error) {
	dst, err := d.draft(dst, min(n, d.s.Context()-len(d.tokens)))
	if err != nil {
		return dst, fmt.Errorf("draft: model %s: %w", d.name, err)
	}
	return dst, nil
}

func (d *Model) draft(dst []int, n int) ([]int, error) {
	if err := d.follow(); err != nil {
		return dst, err
	}
	for i := range n {
		id, err := d.s.Choose(d.greedy)
		if err != nil {
			return dst, err
		}
		if dst = append(dst, id); i == n-1 {
			break
		}
		if err := d.s.Decode(id); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// follow brings the session to the text.
func (d *Model) follow() error {
	same, have := 0, d.s.IDs()
	for same < min(len(have), len(d.tokens)-1) && have[same] == d.tokens[same] {
		same++
	}
	if err := d.s.Rewind(same); err != nil {
		return err
	}
	rest := d.tokens[same:]
	if len(rest) > 2*Most {
		return d.s.Read(rest)
	}
	for _, id := range rest {
		if err := d.s.Decode(id); err != nil {
			return err
		}
	}
	return nil
}

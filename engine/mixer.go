package engine

import (
	"gorgonia.org/tensor"

	"terrace/model"
)

// runMixer takes the pass's rows through a layer that does not attend: Mix, where it has a recurrent mixer, and Finish.
func (p *pass) runMixer(layer int) error {
	var mixed *tensor.Dense
	if p.e.m.Layer[layer].Recurs() {
		var err error
		if mixed, err = p.mix(layer); err != nil {
			return err
		}
	}
	if layer == p.e.m.Layers-1 {
		switch {
		case p.shared && mixed != nil:
			p.lastOfEach(&mixed)
		case p.shared:
			p.lastOfEach()
		case p.want == 0:
			p.hidden = nil
			return nil
		}
	}
	return p.finish(layer, mixed)
}

// mix moves the sessions' states of a layer on by the pass's rows. It returns the mixer's output, nil where it was added to the rows.
func (p *pass) mix(layer int) (*tensor.Dense, error) {
	states := make([]model.StateRows, len(p.sessions))
	for i, s := range p.sessions {
		if p.kv.Rows[i].Err != nil {
			none := make([]float32, p.e.cache[layer].State.Bytes/4)
			states[i] = model.StateRows{Rows: len(p.kv.Rows[i].Pos), From: none, State: none}
			continue
		}
		of := s.text.Seq().States()
		before, behind := of.Copies(layer)
		from, to, err := of.Layer(layer)
		if err != nil {
			return nil, err
		}
		states[i] = model.StateRows{Rows: len(p.kv.Rows[i].Pos), From: from, State: to, Keeps: true, FromCopy: before, Copy: behind}
		s.flops.Mixed(p.e.m, layer, states[i].Rows)
	}
	p.e.retrieval.Yield()
	out, err := p.e.recurs.Mix(&p.rows, layer, p.hidden, states)
	if err != nil {
		return nil, err
	}
	for i, s := range p.sessions {
		if states[i].Keeps {
			s.text.Seq().States().Keep(layer, states[i].Copy)
		}
	}
	return out, nil
}

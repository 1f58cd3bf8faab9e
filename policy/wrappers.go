package policy

import "fmt"

// wrapped builds the policy inside a wrapper, which has to score tokens.
func (a *args) wrapped() Scored {
	p, ok := a.inner.build().(Scored)
	if !ok {
		a.errs = append(a.errs, fmt.Errorf("policy: %s: %s does not score the prompt's tokens: want one that does, such as snapkv: %w",
			a.info.Name, a.inner.entry.info.Name, ErrParam))
		return nil
	}
	return p
}

// bind hands the model on to the policy inside.
func bind(p Policy, m Model) error {
	if b, ok := p.(Binder); ok {
		return b.Bind(m)
	}
	return nil
}

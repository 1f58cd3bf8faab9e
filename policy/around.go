package policy

import "fmt"

// aroundSelector is embedded by wrappers of a selector.
type aroundSelector struct{ inner Selector }

// aroundProjector is embedded beside it where the selector chooses columns of keys.
type aroundProjector struct{ projecting Selector }

// innerSelector is the selector that a wrapper holds, nil with an error where it is none or does more than pick tokens.
func (a *args) innerSelector() Selector {
	inner := a.inner.build()
	selector, ok := inner.(Selector)
	_, keeps := inner.(PromptKeeper)
	why := ""
	switch {
	case !ok || keeps:
		why = "%s does not choose what a step reads: want a selector, such as quest"
	case trained(inner):
		why = "%s is how the model attends by itself, from the prompt on: want another selector"
	case inner.Needs().ValueMean || inner.Needs().Estimates:
		why = "%s lets something stand for tokens that it does not read, which " + a.info.Name + " does not count: want a plain selector (sparq: mean_value=false)"
	default:
		return selector
	}
	a.errs = append(a.errs, fmt.Errorf("policy: %s: "+why+": %w", a.info.Name, inner.Name(), ErrParam))
	return nil
}

func (p *aroundSelector) Bind(m Model) error { return bind(p.inner, m) }

// ObservePrompt implements PromptObserver for a selector that is one.
func (p *aroundSelector) ObservePrompt(l *Layer) {
	if o, ok := p.inner.(PromptObserver); ok {
		o.ObservePrompt(l)
	}
}

// most is how many tokens the selector and the newest are at most.
func (p *aroundSelector) most(l *Layer) (tokens, run int) {
	if r, ok := p.inner.(Reader); ok {
		tokens, _ = r.Most(l)
		return min(tokens+1, l.N), 1
	}
	return l.N, 1
}

// Project implements Projector.
func (p *aroundProjector) Project(l *Layer, kvHead int, dst []float32) {
	p.projecting.(Projector).Project(l, kvHead, dst)
}

// Watches implements Watcher, for a projector that does.
func (p *aroundProjector) Watches() bool {
	w, ok := p.projecting.(Watcher)
	return ok && w.Watches()
}

// WatchPrompt implements Watcher.
func (p *aroundProjector) WatchPrompt(l *Layer, first int, q []float32, rows int) {
	p.projecting.(Watcher).WatchPrompt(l, first, q, rows)
}

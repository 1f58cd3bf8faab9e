package policy

// unscored is a policy whose newest tokens stay whatever the scores say.
type unscored interface{ unscored() int }

// Unscored is how many tokens of a KV head the specification keeps by their place alone, because a fixed window of the prompt's
// newest tokens votes and stays; of a wrapper, what the policy inside keeps. Where a budget is no larger, no token is chosen by
// its score. 0 where there is no such window.
func (s *Spec) Unscored() int {
	set := s.checked
	n := 0
	for _, p := range set.Parts {
		n = max(n, unscoredOf(p))
	}
	return n
}

func unscoredOf(p Policy) int {
	if u, ok := p.(unscored); ok {
		return u.unscored()
	}
	return 0
}

func (p *snapKV) unscored() int { return p.window }

func (p *finch) unscored() int { return p.window }

func (p *adaKV) unscored() int { return unscoredOf(p.inner) }

func (p *chunkKV) unscored() int { return unscoredOf(p.inner) }

func (p *criticalKV) unscored() int { return unscoredOf(p.inner) }

func (p *perLayer) unscored() int { return unscoredOf(p.inner) }

func (p *decoding) unscored() int { return unscoredOf(p.inner) }

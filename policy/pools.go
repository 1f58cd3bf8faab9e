package policy

import "math"

// pools are HillInfer's bidirectional KV cache pools (BKP, algorithms.md 1.6): which tokens are hot, and a table of how
// often each was needed: one 16-bit counter a token, 2 bytes·N. A token's rate is hits over the steps it has been alive.
//
// After each step the hot pool should hold, by priority: the newest ⌈alpha·N⌉ tokens; R, the ⌈alpha·N⌉ tokens with the
// highest rates above 0; then those hot now, by rate. What is missing is promoted, what is too much demoted, lowest rate
// first; tokens move whole, over all layers.
type pools struct {
	alpha  float64
	still  bool // nothing but age decides: the newest are hot
	prompt int
	steps  int
	hits   []uint16
	hot    []bool

	votes   []uint16 // this step: layers whose selection had the token
	rates   []float32
	want    []bool
	ranked  []int32
	scores  []float32
	best    []int32
	pick    picker
	touched bool
}

// start puts the newest hot of n prompt tokens into the hot pool.
func (p *pools) start(n, hot int) {
	p.prompt, p.steps = n, 0
	p.hits, p.hot, p.votes = make([]uint16, n), make([]bool, n), make([]uint16, n)
	for i := n - hot; i < n; i++ {
		p.hot[i] = true
	}
}

// grow adds the tokens generated since; they enter hot.
func (p *pools) grow(n int) {
	for len(p.hits) < n {
		p.hits, p.hot, p.votes = append(p.hits, 0), append(p.hot, true), append(p.votes, 0)
	}
}

// vote counts one layer's selection: positions of the picked indices.
func (p *pools) vote(pos, picks []int32) {
	for _, i := range picks {
		at := int(pos[i])
		p.grow(at + 1)
		p.votes[at]++
	}
	p.touched = true
}

// count ends a step of some selections (one a layer): a token that at least half of them have gets a hit. It returns the share of the selected
// (token, selection) pairs that was hot, or -1 where nothing was selected.
func (p *pools) count(selections int) float64 {
	if !p.touched {
		return -1
	}
	p.touched = false
	p.steps++
	var hot, all int
	for i, v := range p.votes {
		if v == 0 {
			continue
		}
		all += int(v)
		if p.hot[i] {
			hot += int(v)
		}
		if 2*int(v) >= selections && p.hits[i] < math.MaxUint16 {
			p.hits[i]++
		}
		p.votes[i] = 0
	}
	return float64(hot) / float64(max(all, 1))
}

// alive is the number of counted steps that a token has been through.
func (p *pools) alive(position int) int {
	return max(p.steps-max(position-p.prompt+1, 0), 1)
}

// move fills in what changes place so that target of n tokens are hot.
func (p *pools) move(n, target int, m *Moves) {
	m.Promote, m.Demote = m.Promote[:0], m.Demote[:0]
	p.grow(n)
	p.rates, p.want = sized(p.rates, n), sized(p.want, n)
	for i := range n {
		p.rates[i] = float32(p.hits[i]) / float32(p.alive(i))
	}
	clear(p.want)
	left := max(target, 0)
	window := min(portion(p.alpha, n), left)
	if p.still {
		window = min(n, left)
	}
	for i := n - window; i < n; i++ {
		p.want[i] = true
	}
	left -= window
	left = p.fill(n, portion(p.alpha, n), left, func(i int) bool { return p.rates[i] > 0 })
	p.fill(n, n, left, func(i int) bool { return p.hot[i] })
	for i := range n {
		switch {
		case p.want[i] && !p.hot[i]:
			m.Promote = append(m.Promote, int32(i))
		case p.hot[i] && !p.want[i]:
			m.Demote = append(m.Demote, int32(i))
		}
		p.hot[i] = p.want[i]
	}
}

// fill wants the best of the allowed tokens by rate, at most `top` of all allowed ones and `left` that were not wanted
// before; it returns what is left.
func (p *pools) fill(n, top, left int, allowed func(i int) bool) int {
	if left <= 0 {
		return 0
	}
	p.ranked, p.scores = p.ranked[:0], p.scores[:0]
	for i := range n {
		if allowed(i) {
			p.ranked, p.scores = append(p.ranked, int32(i)), append(p.scores, p.rates[i])
		}
	}
	p.best = p.pick.best(p.best[:0], p.scores, top, 0)
	kept := 0 // of the best, those not wanted yet, by rate again where there isn't room for all
	for _, b := range p.best {
		if i := p.ranked[b]; !p.want[i] {
			p.ranked[kept], p.scores[kept] = i, p.rates[i]
			kept++
		}
	}
	p.best = p.pick.best(p.best[:0], p.scores[:kept], left, 0)
	for _, b := range p.best {
		p.want[p.ranked[b]] = true
	}
	return left - len(p.best)
}

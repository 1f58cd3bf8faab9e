package schedule

import "time"

// Bounds of a step's budget while others decode: fewer tokens cost nearly as much as the least (the weights are read once a
// part), more than the most would make cancelling slow.
const (
	leastBudget = 16
	mostBudget  = 512
)

// Pace makes the budget of prompt tokens from measured times, so that tokens of those that decode come as often as wanted.
type Pace struct {
	Target time.Duration // wanted between two tokens at most; 0 = twice what a step takes without prompts

	step, token time.Duration // of a decode step and of a prompt token, lately
}

// Note takes in a step's times: decoding (0 = nobody decoded), and reading so many prompt tokens.
func (p *Pace) Note(decode, prompt time.Duration, tokens int) {
	lately := func(have, now time.Duration) time.Duration {
		if have == 0 {
			return now
		}
		return have + (now-have)/8
	}
	if decode > 0 {
		p.step = lately(p.step, decode)
	}
	if tokens > 0 {
		p.token = lately(p.token, prompt/time.Duration(tokens))
	}
}

// Budget is how many prompt tokens the next step may read.
func (p *Pace) Budget(decoding bool) int {
	if !decoding {
		return mostBudget
	}
	if p.token <= 0 || p.step <= 0 {
		return leastBudget
	}
	room := p.step
	if p.Target > 0 {
		room = p.Target - p.step
	}
	return int(min(max(room/p.token, leastBudget), mostBudget))
}

// A generated token costs more than one that is read, as the virtual token counter weighs them.
const generatedWeight = 2

// Ledger is what each key has used of the engine, in weighted tokens.
type Ledger map[string]float64

// Charge adds tokens that were read and generated for a key.
func (l Ledger) Charge(key string, read, generated int) {
	l[key] += float64(read + generatedWeight*generated)
}

// Join lifts a key that has nothing here to the least of those that have: time in which it asked for nothing gives it no credit.
func (l Ledger) Join(key string, active map[string]int) {
	least, any := 0.0, false
	for k, n := range active {
		if n > 0 && k != key && (!any || l[k] < least) {
			least, any = l[k], true
		}
	}
	if any && active[key] == 0 {
		l[key] = max(l[key], least)
	}
}

package schedule

import "time"

// Bounds of a step's budget while others decode. Each part of a prompt has attention read all of it that came before: fewer tokens than
// the least would take nearly as long. More than the most would make cancelling slow. Kernels take rows by four.
const (
	leastBudget  = 16
	mostBudget   = 512
	rowsTogether = 4
)

// stepsBetween is how many passes with prompts follow each other before one without says again what that costs.
const stepsBetween = 64

// Pace makes the budget of prompt tokens from measured times, so that tokens of those that decode come as often as wanted.
type Pace struct {
	// Target is wanted between two tokens at most. 0 = a prompt that is read beside them may add three quarters of what a step takes
	// without, and each of several as much as a step takes: where many ask at once nobody waits long to be read. It is leastBudget tokens
	// at least.
	Target time.Duration

	step, token time.Duration // of a decode step without prompts, and of a prompt token, lately
	texts       int           // that the step was of
	since       int           // passes with prompts since
}

// Note takes in what a pass took that decoded a token of each of so many texts and read so many prompt tokens beside them.
func (p *Pace) Note(texts, tokens int, took time.Duration) {
	switch {
	case took <= 0 || texts+tokens == 0:
	case tokens == 0:
		if p.texts != texts {
			p.step = 0 // of others
		}
		p.step, p.texts, p.since = lately(p.step, took), texts, 0
	case texts == 0:
		p.token = lately(p.token, took/time.Duration(tokens))
	default: // a row costs half of its part in the pass at least, whatever the step was measured to take
		p.token = lately(p.token, max(took-p.step, took/2*time.Duration(tokens)/time.Duration(texts+tokens))/time.Duration(tokens))
		p.since++
	}
}

func lately(have, now time.Duration) time.Duration {
	if have == 0 {
		return now
	}
	return have + (now-have)/8
}

// Budget is how many prompt tokens the next step may read beside decode steps of so many texts, prompts being those that are read or
// could be; 0 = none, so that it says what a step of so many takes.
func (p *Pace) Budget(texts, prompts int) int {
	switch {
	case texts == 0:
		return mostBudget
	case p.step == 0 || 4*max(texts-p.texts, p.texts-texts) > p.texts || p.since >= stepsBetween:
		return 0
	case p.token == 0:
		return leastBudget
	}
	room := p.step * 3 / 4
	if prompts > 1 {
		room = p.step * time.Duration(prompts)
	}
	if p.Target > 0 {
		room = p.Target - p.step*time.Duration(max(texts, p.texts))/time.Duration(p.texts)
	}
	least := leastBudget
	if p.Target > 0 {
		least = rowsTogether
	}
	n := min(max(int(room/p.token), least), mostBudget)
	if over := (n + texts) % rowsTogether; n-over >= least {
		n -= over
	}
	return n
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

package schedule

import "time"

// Bounds of a step's budget while others decode. Each part of a prompt has attention read all of it that came before, and each pass
// unpacks the weights: fewer tokens than the least would take nearly as long. More than the most would make cancelling slow.
// Kernels take rows by four.
const (
	leastBudget  = 16
	mostBudget   = 512
	rowsTogether = 4
)

// stepsBetween is how many passes with prompts follow each other before one without says again what that costs.
const stepsBetween = 64

// mostSteps is how long tokens of a text may lie apart while prompts of others are read, in steps of all; some passes take a third
// longer than was expected.
const mostSteps = 3

// Pace makes the budget of prompt tokens from measured times, so that tokens of those that decode come as often as wanted.
type Pace struct {
	// Target is wanted between two tokens at most. 0 = mostSteps times what a step takes once all that wait decode too: larger parts of
	// prompts cost less a token. A budget is leastBudget tokens at least, under a target rowsTogether.
	Target time.Duration

	step   float64  // seconds of a decode step without prompts, lately
	texts  int      // of that step
	since  int      // passes with prompts and steps since then
	steps  sizes    // of decode steps, by their texts
	prompt line     // of what prompts add to a pass, by their tokens
	over   surprise // of passes with prompts and steps
}

// Note takes in what a pass took that decoded a token of each of so many texts and read so many prompt tokens beside them.
func (p *Pace) Note(texts, tokens int, took time.Duration) {
	switch s := took.Seconds(); {
	case took <= 0 || texts+tokens == 0:
	case tokens == 0:
		if p.texts != texts || p.step == 0 {
			p.step = s // not of others
		}
		p.step += (s - p.step) / 8
		p.steps.note(texts, s)
		p.texts, p.since = texts, 0
	case texts == 0:
		p.prompt.note(float64(tokens), s)
	default:
		if p.step > 0 && p.prompt.known() {
			p.over.note(s / (p.stepOf(texts) + p.prompt.of(tokens)))
		}
		// a row costs half of its part in the pass at least, whatever the step was measured to take
		p.prompt.note(float64(tokens), max(s-p.step, s/2*float64(tokens)/float64(texts+tokens)))
		p.since++
	}
}

// Budget is how many prompt tokens the next step may read beside decode steps of so many texts, prompts being those that are read or
// could be; 0 = none, so that it says what a step of so many takes.
func (p *Pace) Budget(texts, prompts int) int {
	switch {
	case texts == 0:
		return mostBudget
	case p.step == 0 || 4*max(texts-p.texts, p.texts-texts) > p.texts || p.since >= stepsBetween:
		return 0
	case !p.prompt.known():
		return leastBudget
	}
	step := p.stepOf(texts)
	least, gap := leastBudget, mostSteps*p.all(step, texts, prompts)
	if p.Target > 0 {
		least, gap = rowsTogether, p.Target.Seconds()/p.over.most()
	}
	n := min(max(p.prompt.within(gap-step), least), mostBudget)
	if over := (n + texts) % rowsTogether; n-over >= least {
		n -= over
	}
	return n
}

// stepOf is what a step of so many texts takes, by the last ones.
func (p *Pace) stepOf(texts int) float64 {
	return p.step * float64(max(texts, p.texts)) / float64(p.texts)
}

// all is what a step of so many texts takes once all prompts decode too: as steps of so many took, but no more than if half of a step were
// its texts', since those may have been longer.
func (p *Pace) all(step float64, texts, prompts int) float64 {
	return max(step, min(p.steps.of(texts+prompts), step*(1+float64(prompts)/float64(2*texts))))
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

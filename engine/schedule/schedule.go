package schedule

import (
	"cmp"
	"slices"
)

// Request is what the scheduler knows of a request.
type Request struct {
	ID     int64  // higher = came later
	Key    string // whose it is
	Unread int    // tokens of its prompt that are not read yet
	Least  int    // fewest tokens of the prompt that can be read at once; 0 = any number
	Part   int    // most tokens of the prompt that are read at once; 0 = any number
	Held   int    // tokens that its KV takes now, or took when it was swapped out
	Most   int    // tokens' worth of room that its KV will take at least once it ends
	Extra  int    // tokens' worth of room that its KV takes beside its tokens
	Kept   bool   // it was swapped out with its KV, and goes on where it was
	Stuck  bool   // it had no room beside others, none of whom has left since
}

// State is what there is to decide about.
type State struct {
	Waiting, Running, Swapped []Request
	Slots                     int    // requests that may run at a time
	Budget                    int    // prompt tokens for this step; 0 = none
	Room                      int    // tokens that KV has room for in all; 0 = no limit
	Free                      int    // of them not taken
	Page                      int    // tokens that room is given out in
	Ledger                    Ledger // what each key has used
}

// Part is tokens of a prompt.
type Part struct {
	ID     int64
	Tokens int
}

// Step is what the engine does next, in this order.
type Step struct {
	Refuse []int64 // will never fit
	Swap   []int64 // leave their room to others
	Resume []int64 // swapped requests that run again
	Admit  []int64 // waiting requests that run from now on
	Decode []int64
	Prompt []Part
}

// Next decides.
func Next(s State) Step {
	p := planner{State: s}
	p.Page = max(1, p.Page)
	p.refuse()
	p.Running = bySeniority(p.Running)
	p.makeRoom()
	p.resume()
	p.admit()
	p.prompts()
	return p.step
}

type planner struct {
	State
	step Step
}

func bySeniority(list []Request) []Request {
	return slices.SortedFunc(slices.Values(list), func(a, b Request) int { return cmp.Compare(a.ID, b.ID) })
}

func (p *planner) pages(tokens int) int { return (tokens + p.Page - 1) / p.Page * p.Page }

// growth is what a request takes more with another token.
func (p *planner) growth(r Request) int { return p.pages(r.Held+1) - p.pages(r.Held) }

func (p *planner) refuse() {
	p.Waiting = slices.DeleteFunc(bySeniority(p.Waiting), func(r Request) bool {
		never := p.Room > 0 && r.Most > p.Room
		if never {
			p.step.Refuse = append(p.step.Refuse, r.ID)
		}
		return never
	})
}

// makeRoom swaps the youngest out until the others can take a step, and lists the steps.
func (p *planner) makeRoom() {
	for p.Room > 0 && len(p.Running) > 1 && p.short() {
		last := len(p.Running) - 1
		p.step.Swap = append(p.step.Swap, p.Running[last].ID)
		p.Free += p.pages(p.Running[last].Held)
		p.Running = p.Running[:last]
	}
	for _, r := range p.Running {
		if r.Unread == 0 {
			p.step.Decode = append(p.step.Decode, r.ID)
			p.Free -= p.growth(r)
		}
	}
}

// short reports whether there is no room for a step of each that decodes, or for the next part of the oldest prompt where
// nobody decodes and others run.
func (p *planner) short() bool {
	need, decoding := 0, false
	for _, r := range p.Running {
		if r.Unread == 0 {
			need, decoding = need+p.growth(r), true
		}
	}
	if !decoding {
		need = p.pages(p.Running[0].Held+max(1, p.Running[0].Least)) - p.pages(p.Running[0].Held)
	}
	return need > p.Free
}

// fits reports whether there is a slot, and room for a text of r of so many tokens and one token more beside what those that run
// will take soon: the rest of their prompts, and a page each, so that nobody is swapped out at once again.
func (p *planner) fits(r Request, tokens int) bool {
	if len(p.Running) == 0 || len(p.Running) >= p.Slots {
		return len(p.Running) < p.Slots
	}
	soon := 0
	for _, r := range p.Running {
		soon += p.pages(r.Held+r.Unread) - p.pages(r.Held) + p.Page
		if r.Unread > 0 {
			soon += r.Extra
		}
	}
	return p.Room == 0 || p.pages(tokens+1)+r.Extra <= p.Free-soon
}

// resume brings swapped requests back, the oldest first; none in the step that swapped one out.
func (p *planner) resume() {
	for _, r := range bySeniority(p.Swapped) {
		if len(p.step.Swap) > 0 || r.Stuck && len(p.Running) > 0 || !p.fits(r, r.Held) {
			return
		}
		p.step.Resume = append(p.step.Resume, r.ID)
		if !r.Kept {
			r.Unread, r.Held = max(r.Unread, r.Held), 0
		}
		p.Running = append(p.Running, r)
	}
}

// admit lets waiting requests run: the key that has used least, and of it the oldest.
func (p *planner) admit() {
	if len(p.step.Swap) > 0 || len(p.step.Resume) < len(p.Swapped) {
		return
	}
	used := Ledger{}
	for k, v := range p.Ledger {
		used[k] = v
	}
	for len(p.Waiting) > 0 {
		at := 0
		for i, r := range p.Waiting {
			if used[r.Key] < used[p.Waiting[at].Key] {
				at = i
			}
		}
		r := p.Waiting[at]
		if !p.fits(r, r.Unread) {
			return
		}
		used[r.Key] += float64(r.Unread)
		p.step.Admit = append(p.step.Admit, r.ID)
		p.Running = append(p.Running, r)
		p.Waiting = slices.Delete(p.Waiting, at, at+1)
	}
}

// wholePages is from how many pages on a part ends with one: what that leaves of a small budget would be much of it.
const wholePages = 4

// prompts hands the budget out, to the key that has used least first. A part that cannot be smaller than the budget comes first
// or not at all.
func (p *planner) prompts() {
	if p.Budget == 0 {
		return
	}
	reading := slices.DeleteFunc(slices.Clone(p.Running), func(r Request) bool { return r.Unread == 0 })
	slices.SortStableFunc(reading, func(a, b Request) int {
		return cmp.Or(cmp.Compare(p.Ledger[a.Key], p.Ledger[b.Key]), cmp.Compare(a.ID, b.ID))
	})
	left := p.Budget
	for _, r := range reading {
		n, least := min(r.Unread, left), min(r.Least, r.Unread)
		if r.Part > 0 {
			n = min(n, r.Part)
		}
		if n < r.Unread && n >= wholePages*p.Page {
			n -= n % p.Page
		}
		if n < least && len(p.step.Prompt) == 0 {
			n = least
		}
		if room := p.Free + p.pages(r.Held) - r.Held; p.Room > 0 && n > room && len(p.Running) > 1 {
			n = room
		}
		if n < max(least, 1) {
			continue
		}
		p.step.Prompt = append(p.step.Prompt, Part{r.ID, n})
		left -= n
		p.Free -= p.pages(r.Held+n) - p.pages(r.Held)
	}
}

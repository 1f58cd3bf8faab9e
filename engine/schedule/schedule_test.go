package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestNext reads states as text: a line a request, "waiting|running|swapped ID key=K unread=N held=N most=N least=N part=N extra=N stuck=1 kept=1".
func TestNext(t *testing.T) {
	datadriven.RunTest(t, "testdata/next", func(t *testing.T, d *datadriven.TestData) string {
		s := State{Slots: 8, Budget: 64, Page: 16, Ledger: Ledger{}}
		for _, a := range d.CmdArgs {
			n, err := strconv.Atoi(a.Vals[0])
			switch a.Key {
			case "slots":
				s.Slots = n
			case "budget":
				s.Budget = n
			case "room":
				s.Room = n
			case "free":
				s.Free = n
			default:
				s.Ledger[a.Key] = float64(n)
			}
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
		for line := range strings.Lines(d.Input) {
			f := strings.Fields(line)
			r := Request{Key: "a"}
			r.ID, _ = strconv.ParseInt(f[1], 10, 64)
			for _, kv := range f[2:] {
				k, v, _ := strings.Cut(kv, "=")
				n, _ := strconv.Atoi(v)
				switch k {
				case "key":
					r.Key = v
				case "unread":
					r.Unread = n
				case "held":
					r.Held = n
				case "most":
					r.Most = n
				case "least":
					r.Least = n
				case "part":
					r.Part = n
				case "extra":
					r.Extra = n
				case "stuck":
					r.Stuck = true
				case "kept":
					r.Kept = true
				default:
					d.Fatalf(t, "%s", kv)
				}
			}
			switch f[0] {
			case "waiting":
				s.Waiting = append(s.Waiting, r)
			case "running":
				s.Running = append(s.Running, r)
			case "swapped":
				s.Swapped = append(s.Swapped, r)
			default:
				d.Fatalf(t, "%s", line)
			}
		}
		return show(Next(s))
	})
}

func show(s Step) string {
	var b strings.Builder
	for _, l := range []struct {
		what string
		ids  []int64
	}{{"refuse", s.Refuse}, {"swap", s.Swap}, {"resume", s.Resume}, {"admit", s.Admit}, {"decode", s.Decode}} {
		if len(l.ids) > 0 {
			fmt.Fprintf(&b, "%s %v\n", l.what, strings.Trim(fmt.Sprint(l.ids), "[]"))
		}
	}
	for _, p := range s.Prompt {
		fmt.Fprintf(&b, "prompt %d: %d\n", p.ID, p.Tokens)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// TestEverybodyEnds plays 300 requests of three keys, one of them with most of the requests, through a virtual clock on too
// little room: all end, none is refused, no key waits for another's backlog, and the step stays near its target.
func TestEverybodyEnds(t *testing.T) {
	const (
		slots, room, page = 6, 600, 16
		step, token       = 10 * time.Millisecond, 500 * time.Microsecond
	)
	type live struct {
		Request
		prompt, want, made int
		ended              time.Duration
	}
	var all []*live
	for i := range 300 {
		key := "flood"
		if i%30 == 7 {
			key = "few"
		}
		l := &live{Request: Request{ID: int64(i), Key: key}, prompt: 20 + i*37%200, want: 5 + i*11%60}
		l.Unread, l.Most = l.prompt, l.prompt+l.want
		all = append(all, l)
	}
	var (
		now     time.Duration
		pace    = Pace{Target: 40 * time.Millisecond}
		ledger  = Ledger{}
		waiting = append([]*live(nil), all...)
		running []*live
		swapped []*live
		swaps   int
	)
	pages := func(n int) int { return (n + page - 1) / page * page }
	list := func(from []*live) (out []Request) {
		for _, l := range from {
			out = append(out, l.Request)
		}
		return out
	}
	move := func(id int64, from, to *[]*live) *live {
		for i, l := range *from {
			if l.ID == id {
				*from = append(append([]*live(nil), (*from)[:i]...), (*from)[i+1:]...)
				if to != nil {
					*to = append(*to, l)
				}
				return l
			}
		}
		t.Fatalf("request %d is not where the step says", id)
		return nil
	}
	find := func(id int64) *live {
		for _, l := range running {
			if l.ID == id {
				return l
			}
		}
		t.Fatalf("request %d does not run", id)
		return nil
	}
	for rounds := 0; len(waiting)+len(running)+len(swapped) > 0; rounds++ {
		if rounds > 100000 {
			t.Fatalf("no end: %d wait, %d run, %d are swapped out", len(waiting), len(running), len(swapped))
		}
		free, decoding := room, 0
		for _, l := range running {
			free -= pages(l.Held)
			if l.Unread == 0 {
				decoding++
			}
		}
		if free < 0 {
			t.Fatalf("%d tokens more than there is room for", -free)
		}
		s := Next(State{Waiting: list(waiting), Running: list(running), Swapped: list(swapped), Slots: slots, Budget: pace.Budget(decoding, min(slots, len(running)+len(waiting)+len(swapped))-decoding), Room: room, Free: free, Page: page, Ledger: ledger})
		if len(s.Refuse) > 0 {
			t.Fatalf("refused %v", s.Refuse)
		}
		for _, id := range s.Swap {
			l := move(id, &running, &swapped)
			l.Unread, l.Held = 0, l.prompt+l.made
			swaps++
		}
		for _, id := range s.Resume {
			l := move(id, &swapped, &running)
			l.Unread, l.Held = l.Held, 0
		}
		for _, id := range s.Admit {
			move(id, &waiting, &running)
		}
		var took, decode time.Duration
		for _, id := range s.Decode {
			l := find(id)
			decode = step
			l.made++
			l.Held++
			ledger.Charge(l.Key, 0, 1)
			if l.made >= l.want {
				l.ended = now
				move(id, &running, nil)
			}
		}
		read := 0
		for _, p := range s.Prompt {
			l := find(p.ID)
			l.Unread, l.Held = l.Unread-p.Tokens, l.Held+p.Tokens
			ledger.Charge(l.Key, p.Tokens, 0)
			read += p.Tokens
		}
		if took = time.Duration(read) * token; decode > 0 && decode+took > pace.Target+page*token {
			t.Fatalf("a step of %v, want at most %v", decode+took, pace.Target)
		}
		pace.Note(len(s.Decode), read, decode+took)
		if now += decode + took; decode+took == 0 && len(s.Admit)+len(s.Resume)+len(s.Swap) == 0 {
			t.Fatalf("nothing happens: %d wait, %d run, %d are swapped out", len(waiting), len(running), len(swapped))
		}
	}
	if swaps == 0 {
		t.Error("no memory pressure: the test sees nothing")
	}
	for _, l := range all {
		if l.Key == "few" && l.ended > now/2 {
			t.Errorf("request %d of the key with few requests ended at %v of %v", l.ID, l.ended, now)
		}
	}
}

func TestLedgerGivesNoCredit(t *testing.T) {
	l := Ledger{"a": 500, "b": 300}
	l.Join("new", map[string]int{"a": 2, "b": 1})
	if l["new"] != 300 {
		t.Errorf("a new key begins at %g, want 300", l["new"])
	}
	l.Join("a", map[string]int{"b": 1})
	if l["a"] != 500 {
		t.Errorf("a key that comes back has %g, want its 500", l["a"])
	}
	l.Join("b", map[string]int{"b": 3, "a": 1})
	if l["b"] != 300 {
		t.Errorf("an active key was lifted to %g", l["b"])
	}
}

// TestPaceFollowsTheTexts: prompts that are read beside texts let a token come each mostSteps of all texts' steps, but for their least
// part, however many texts there are; a target bounds it.
func TestPaceFollowsTheTexts(t *testing.T) {
	const base, row = 4 * time.Millisecond, 2 * time.Millisecond
	cost := func(texts, tokens int) time.Duration {
		return base + time.Duration(texts)*row + time.Duration(tokens)*row*2/3
	}
	for _, target := range []time.Duration{0, 60 * time.Millisecond} {
		for _, prompts := range []int{1, 4} {
			p := Pace{Target: target}
			p.Note(0, 512, cost(0, 512))
			plain, tokens := 0, 0
			for step := range 4000 {
				texts := []int{2, 8, 24, 9, 10, 11}[step/500%6]
				n := p.Budget(texts, prompts)
				took := cost(texts, n)
				bound := max(mostSteps*cost(texts+prompts, 0), cost(texts, leastBudget)) + row
				if target > 0 {
					bound = max(target, cost(texts, rowsTogether)) + row
				}
				if took > bound {
					t.Fatalf("target %v, %d prompts, step %d of %d texts: %d tokens take %v, want %v at most", target, prompts, step, texts, n, took, bound)
				}
				if n == 0 {
					plain++
				}
				p.Note(texts, n, took)
				tokens += n
			}
			if plain < 4000/stepsBetween-4 || plain > 4000/stepsBetween+20 {
				t.Errorf("target %v, %d prompts: %d of 4000 steps without prompts", target, prompts, plain)
			}
			if tokens < 4000*rowsTogether*2 {
				t.Errorf("target %v, %d prompts: %d tokens were read", target, prompts, tokens)
			}
		}
	}
}

// TestTargetHolds: where passes take now longer and now shorter than they should, few pass the target, and most of it is used.
func TestTargetHolds(t *testing.T) {
	const target, texts = 60 * time.Millisecond, 4
	noise, p := rand.New(rand.NewPCG(3, 4)), Pace{Target: target}
	cost := func(tokens int) time.Duration {
		return time.Duration((8 + 0.5*float64(tokens)) * (1 + 0.15*noise.NormFloat64()) * float64(time.Millisecond))
	}
	p.Note(0, 512, cost(512))
	late, passes, tokens := 0, 0, 0
	for range 4000 {
		n := p.Budget(texts, 4)
		took := cost(n)
		if n > 0 {
			passes, tokens = passes+1, tokens+n
			if took > target {
				late++
			}
		}
		p.Note(texts, n, took)
	}
	if late > passes/40 {
		t.Errorf("%d of %d passes were later than the target", late, passes)
	}
	if each := tokens / passes; each < 48 { // 104 tokens take the target; 66 with two and a third deviations to spare
		t.Errorf("%d tokens a pass", each)
	}
}

// TestSizes: what was not measured lies between what was, or a quarter of a doubling beyond it.
func TestSizes(t *testing.T) {
	var s sizes
	if got := s.of(3); got != 0 {
		t.Errorf("nothing is known, got %g", got)
	}
	for range 50 {
		s.note(2, 0.010)
		s.note(6, 0.018)
	}
	for size, want := range map[int]float64{1: 0.010, 2: 0.010, 3: 0.012, 5: 0.016, 6: 0.018, 12: 0.0225} {
		if got := s.of(size); math.Abs(got-want) > 1e-9 {
			t.Errorf("%d take %g, want %g", size, got, want)
		}
	}
	for range 100 { // one size for long says nothing of the others
		s.note(2, 0.020)
	}
	if got := s.of(6); math.Abs(got-0.018) > 1e-9 {
		t.Errorf("6 take %g, want 0.018", got)
	}
}

// TestLine: from noisy figures of two sizes, then of one for long, a line keeps what it takes at once and what each adds.
func TestLine(t *testing.T) {
	for name, first := range map[string]float64{"small": 16, "large": 480} {
		l, noise := line{}, rand.New(rand.NewPCG(1, 2))
		l.note(first, 0.009+0.0002*first)
		for i := range 400 {
			size := 96.0
			if i < 40 && i%2 == 0 {
				size = 480
			}
			l.note(size, (0.009+0.0002*size)*(1+0.05*noise.NormFloat64()))
		}
		for size, want := range map[int]float64{0: 0.009, 96: 0.0282, 480: 0.105} {
			if got := l.of(size); math.Abs(got-want) > 0.15*want+0.002 {
				t.Errorf("%s first: %d take %.4f s, want %.4f", name, size, got, want)
			}
		}
		if n := l.within(0.0282); n < 80 || n > 112 {
			t.Errorf("%s first: %d within 28.2 ms, want 96", name, n)
		}
	}
}

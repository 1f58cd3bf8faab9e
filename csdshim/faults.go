package csdshim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"terrace/csdshim/wire"
)

// FaultKind is something that a drive does wrong on purpose.
type FaultKind string

// The faults. Those of a connection (version) are asked for at the greeting, the others at each request.
const (
	FaultStall      FaultKind = "stall"      // no answer, for as long as For says; 0 = ever
	FaultSlow       FaultKind = "slow"       // the request waits For before it begins
	FaultDisconnect FaultKind = "disconnect" // the connection ends in the middle of a frame of the reply
	FaultShort      FaultKind = "short"      // a frame of the reply has fewer bytes than its header says
	FaultGarbage    FaultKind = "garbage"    // random bytes instead of a frame of the reply
	FaultFlip       FaultKind = "flip"       // a bit of a frame's payload is flipped
	FaultTwice      FaultKind = "twice"      // the reply's frames are sent twice, from one on
	FaultFail       FaultKind = "fail"       // the request fails
	FaultVersion    FaultKind = "version"    // the drive greets in another version
	FaultCorrupt    FaultKind = "corrupt"    // a bit of a page that was just written is flipped on flash
)

var faultKinds = []FaultKind{FaultStall, FaultSlow, FaultDisconnect, FaultShort, FaultGarbage, FaultFlip, FaultTwice, FaultFail, FaultVersion, FaultCorrupt}

// Fault is a rule: of the requests that it is about, the first After are spared, then each goes wrong with a Chance.
type Fault struct {
	Kind   FaultKind
	On     string // the request: open, write, score, fetch, gather, promote, demote, drop, stats; "" = all
	After  int
	Chance float64 // 0 means 1
	Times  int     // at most so often; 0 = always
	Frames int     // of a reply that goes wrong, the first so many are sent as they are
	For    time.Duration
}

// Faults are what a drive does wrong, for tests; the same seed does the same.
type Faults struct {
	Seed  uint64
	Rules []Fault
}

// ParseFault reads a rule: "stall:on=score,after=10,chance=0.5,times=1,for=2s", "disconnect:on=score,frames=3".
func ParseFault(text string) (Fault, error) {
	kind, rest, _ := strings.Cut(text, ":")
	f := Fault{Kind: FaultKind(kind)}
	if !slices.Contains(faultKinds, f.Kind) {
		return f, fmt.Errorf("csdshim: fault %q: want one of %v: %w", text, faultKinds, ErrRequest)
	}
	for _, pair := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(pair, "=")
		var err error
		switch key {
		case "on":
			f.On = value
		case "after":
			f.After, err = strconv.Atoi(value)
		case "times":
			f.Times, err = strconv.Atoi(value)
		case "frames":
			f.Frames, err = strconv.Atoi(value)
		case "chance":
			f.Chance, err = strconv.ParseFloat(value, 64)
		case "for":
			f.For, err = time.ParseDuration(value)
		default:
			err = errors.New("unknown key")
		}
		if err != nil {
			return f, fmt.Errorf("csdshim: fault %q: %q: %w: %w", text, pair, err, ErrRequest)
		}
	}
	return f, nil
}

// injector decides which request goes wrong.
type injector struct {
	mu    sync.Mutex
	rng   *rand.Rand
	rules []Fault
	seen  []int
	done  []int
}

func newInjector(f Faults) *injector {
	i := &injector{}
	i.set(f)
	return i
}

// set replaces the rules and resets their counts.
func (i *injector) set(f Faults) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rng, i.rules = rand.New(rand.NewPCG(f.Seed, 0xfa017)), f.Rules
	i.seen, i.done = make([]int, len(f.Rules)), make([]int, len(f.Rules))
}

// pick returns the fault of a request, if it has one.
func (i *injector) pick(request string, kinds ...FaultKind) *Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n := range i.rules {
		r := &i.rules[n]
		if !slices.Contains(kinds, r.Kind) || r.On != "" && r.On != request || r.Times > 0 && i.done[n] >= r.Times {
			continue
		}
		if i.seen[n]++; i.seen[n] <= r.After || r.Chance > 0 && i.rng.Float64() >= r.Chance {
			continue
		}
		i.done[n]++
		return r
	}
	return nil
}

// corrupt may flip a bit of one of the pages just written.
func (i *injector) corrupt(d *Drive, pages []uint32) {
	if i.pick("write", FaultCorrupt) == nil || len(pages) == 0 {
		return
	}
	i.mu.Lock()
	page, bit := pages[i.rng.IntN(len(pages))], i.rng.IntN(8*d.opts.Profile.NAND.PageBytes)
	i.mu.Unlock()
	_ = d.store.Damage(page, bit)
}

// noise fills b with random bytes.
func (i *injector) noise(b []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n := range b {
		b[n] = byte(i.rng.Uint32())
	}
}

// before does what a request's fault does before the request; stop says that there is no request any more.
func (c *conn) before(ctx context.Context, h wire.Header) (stop bool, err error) {
	request := h.Type.String()
	if h.Type == wire.TypeScoreMany {
		request = wire.TypeScore.String()
	}
	f := c.d.faults.pick(request, FaultStall, FaultSlow, FaultDisconnect, FaultShort, FaultGarbage, FaultFlip, FaultTwice, FaultFail)
	if f == nil {
		return false, nil
	}
	switch f.Kind {
	case FaultStall, FaultSlow:
		wait := ctx
		if f.For > 0 {
			var cancel context.CancelFunc
			wait, cancel = context.WithTimeout(ctx, f.For)
			defer cancel()
		}
		<-wait.Done()
		return f.Kind == FaultStall, nil
	case FaultFail:
		return false, fmt.Errorf("csdshim: %v: injected failure: %w", h.Type, ErrDrive)
	}
	c.writeMu.Lock()
	c.sabotage[h.ID] = &sabotaged{f.Kind, f.Frames}
	c.writeMu.Unlock()
	return false, nil
}

// sabotaged is a reply that goes wrong.
type sabotaged struct {
	kind  FaultKind
	spare int // frames that are sent as they are
}

// mangle sends a frame of a request that goes wrong; false where the frame is to be sent as it is. writeMu is held.
func (c *outbox) mangle(h wire.Header, payload []byte) (done bool, err error) {
	s, ok := c.sabotage[h.ID]
	if !ok {
		return false, nil
	}
	if s.spare > 0 {
		s.spare--
		return false, nil
	}
	kind := s.kind
	h.Length, h.Sum = len(payload), wire.Checksum(0, payload)
	frame := append(h.Append(nil), payload...)
	again := kind == FaultTwice
	if !again {
		delete(c.sabotage, h.ID)
	}
	switch kind {
	case FaultDisconnect:
		frame = frame[:wire.HeaderBytes+len(payload)/2]
	case FaultShort:
		frame = frame[:len(frame)-min(len(payload), 3)]
	case FaultGarbage:
		c.noise(frame)
	case FaultFlip:
		frame[len(frame)-1] ^= 4
	case FaultTwice:
		frame = append(frame, frame...)
	}
	_, err = c.c.Write(frame)
	if kind == FaultDisconnect {
		c.broken = true
		c.c.Close()
	}
	return true, err
}

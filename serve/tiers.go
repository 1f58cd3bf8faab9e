package serve

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"terrace/engine"
	"terrace/engine/cachepage"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{{method: http.MethodGet, path: "/v1/terrace/tiers", serve: s.tiers}}
	})
}

// How often those who watch the tiers get a picture: while something happens, and else.
const (
	pictureEvery = 250 * time.Millisecond
	pictureIdle  = time.Second
	mapEvery     = time.Second // where tokens lie: all positions of all layers are looked at
)

// picture is the tiers at a time: what lies where, and counters since the start, from which rates follow.
type picture struct {
	AtMS          int64     `json:"at_ms"` // since the server's start
	Tiers         []place   `json:"tiers"` // fastest first
	Moved         []moved   `json:"moved"`
	HitRate       *float64  `json:"hit_rate"` // of host memory, of what steps asked for; null without a tier below
	TokensRead    int64     `json:"tokens_read"`
	TokensFetched int64     `json:"tokens_fetched"` // of them not in host memory
	StallMS       float64   `json:"stall_ms"`       // steps stood still for the tier below
	Tokens        float64   `json:"tokens"`         // of prompts and answers, computed
	Running       int       `json:"running"`
	Waiting       int       `json:"waiting"`
	Sequences     []text    `json:"sequences"`
	taken         time.Time // zero = none was
	// Experts is where each layer's experts are that are read from the model's file, a letter each (engine.ExpertPlaces), for who asks for maps.
	Experts map[int]string `json:"experts,omitempty"`
}

type place struct {
	Name          string `json:"name"`
	UsedBytes     int64  `json:"used_bytes"`
	PeakBytes     int64  `json:"peak_bytes"`
	CapacityBytes int64  `json:"capacity_bytes"` // 0 = no limit
}

// text is a choice of a request, without what it says.
type text struct {
	ID        int64  `json:"id"`
	State     string `json:"state"` // waiting, reading (its prompt), decoding, swapped (out, for want of room)
	Policy    string `json:"policy"`
	Prompt    int    `json:"prompt_tokens"`
	Read      int    `json:"read_tokens"` // of prompt and answer
	Generated int    `json:"generated_tokens"`
	KVBytes   int64  `json:"kv_bytes"` // of its pages, wherever they lie
	MS        int64  `json:"ms"`       // since the request came
	// Cache is where its tokens lie, of those that decode, for who asks for it.
	Cache *cachepage.Map `json:"cache,omitempty"`
}

// textsShown is how many texts a picture has at most, mapsShown of how many it has where their tokens lie, and mapCells of a layer's row there.
const (
	textsShown = 256
	mapsShown  = 16
	mapCells   = 96
)

type moved struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Bytes int64  `json:"bytes"`
}

// watch hands pictures of the tiers from the loop, which alone may ask the engine, to those who watch.
type watch struct {
	mu       sync.Mutex
	watchers int
	maps     int // of them, who ask where tokens lie
	mapped   time.Time
	now      picture
	taken    chan struct{} // closed at the next picture
}

// look takes a picture where somebody watches and the last one is old, or where the loop comes to rest.
func (w *watch) look(l *loop, rest bool) {
	w.mu.Lock()
	skip := w.watchers == 0 || !rest && time.Since(w.now.taken) < pictureEvery
	maps := w.maps > 0 && (rest || time.Since(w.mapped) >= mapEvery)
	w.mu.Unlock()
	if skip {
		return
	}
	p := l.picture()
	if maps {
		l.drawMaps(p.Sequences)
		p.Experts = l.e.ExpertPlaces()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if maps {
		w.mapped = p.taken
	} else {
		keepMaps(p.Sequences, w.now.Sequences)
		p.Experts = w.now.Experts
	}
	w.now = p
	if w.taken != nil {
		close(w.taken)
		w.taken = nil
	}
}

// next is the last picture, and what is closed when there is another one.
func (w *watch) next() (picture, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken == nil {
		w.taken = make(chan struct{})
	}
	return w.now, w.taken
}

func (w *watch) join(n int, maps bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watchers += n
	if maps {
		w.maps += n
	}
	if w.watchers == n || maps && w.maps == n { // the first, or the first to ask for maps: what was seen before is old, or has none
		w.now, w.mapped = picture{}, time.Time{}
	}
}

// picture asks the engine.
func (l *loop) picture() picture {
	u := l.e.TierUse()
	p := picture{taken: time.Now(), HitRate: u.HitRate, TokensRead: u.TokensRead, TokensFetched: u.TokensFetched, StallMS: ms(u.Stall),
		Tokens: l.m.promptTokens.Value() + l.m.generated.Value(), Moved: []moved{}, Tiers: places(l.e.Places())}
	for _, between := range slices.Sorted(maps.Keys(u.MovedBytes)) {
		from, to, _ := strings.Cut(between, ">")
		p.Moved = append(p.Moved, moved{from, to, u.MovedBytes[between]})
	}
	p.Sequences = l.texts()
	l.mu.Lock()
	defer l.mu.Unlock()
	p.Running, p.Waiting = l.begun, l.jobs-l.begun
	return p
}

// texts are those that run, are swapped out and wait, in this order.
func (l *loop) texts() []text {
	list := make([]text, 0, min(len(l.running)+len(l.swapped)+len(l.waiting), textsShown))
	for i, state := range [][]*sequence{l.running, l.swapped, l.waiting} {
		for _, q := range state {
			if len(list) == cap(list) {
				break
			}
			t := text{ID: q.id, State: [...]string{"decoding", "swapped", "waiting"}[i], Policy: q.under.String(), Prompt: len(q.prompt), MS: time.Since(q.job.r.received).Milliseconds()}
			if q.session != nil {
				t.Read, t.KVBytes = q.session.Tokens(), q.session.Sequence().Bytes()
			}
			if i == 0 && (q.fresh || q.reading != nil) {
				t.State = "reading"
			}
			if q.gen != nil {
				t.Generated = q.gen.Tokens()
			}
			list = append(list, t)
		}
	}
	return list
}

// drawMaps fills in where the tokens of the first texts that decode lie.
func (l *loop) drawMaps(list []text) {
	drawn := 0
	for i := range list {
		if list[i].State != "decoding" || drawn == mapsShown {
			continue
		}
		m := cachepage.MapOf(l.e, l.running[i].session, mapCells) // texts begins with the running ones
		list[i].Cache = &m
		drawn++
	}
}

// keepMaps gives texts the maps of the picture before.
func keepMaps(list, before []text) {
	for i := range list {
		if at := slices.IndexFunc(before, func(t text) bool { return t.ID == list[i].ID }); at >= 0 && list[i].State == "decoding" {
			list[i].Cache = before[at].Cache
		}
	}
}

// withoutMaps is the list for who did not ask for maps.
func withoutMaps(list []text) []text {
	list = slices.Clone(list)
	for i := range list {
		list[i].Cache = nil
	}
	return list
}

func places(list []engine.Place) []place {
	out := make([]place, len(list))
	for i, t := range list {
		out[i] = place{t.Name, t.HeldBytes, t.PeakBytes, t.CapacityBytes}
	}
	return out
}

// tiers answers GET /v1/terrace/tiers: server-sent events, four a second while something happens, one a second else. With ?cache=1 it has where the
// tokens of texts that decode lie, and experts, as it was at most a second before.
func (s *Server) tiers(w http.ResponseWriter, r *http.Request) error {
	out := stream{w: w, r: r}
	maps := r.URL.Query().Get("cache") == "1"
	s.loop.watch.join(1, maps)
	defer s.loop.watch.join(-1, maps)
	s.loop.signal()
	for !s.draining.Load() {
		p, changed := s.loop.watch.next()
		if !p.taken.IsZero() {
			p.AtMS = time.Since(s.started).Milliseconds()
			if !maps {
				p.Sequences, p.Experts = withoutMaps(p.Sequences), nil
			}
			if err := out.send("", p); err != nil {
				return err
			}
		}
		again := time.NewTimer(pictureIdle)
		select {
		case <-changed:
		case <-again.C:
		case <-r.Context().Done():
			return r.Context().Err()
		}
		again.Stop()
	}
	if !out.begun {
		return errDraining
	}
	return nil
}

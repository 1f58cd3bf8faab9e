package retrieval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"terrace/csdshim"
	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

// fakeDrive is a store that scores keys as offload.Scorer says, token by token from what it holds: slow, and made from that text alone.
// A request takes a millisecond. It notes what it is asked, and fails where a test wants it to.
type fakeDrive struct {
	*fakes.Store
	layout kvpage.Layout
	heads  int
	codes  csdshim.Codes
	id     csdshim.Identity
	trip   time.Duration

	mu       sync.Mutex
	scales   map[fakeLayer][]float32
	hot      map[uint64]map[int32]bool
	fail     func(call string, layer int) error
	extra    int    // tokens that an answer leaves out at its end
	lost     uint64 // home whose tokens are not handed out; 0 = none
	calls    map[string]int
	messages []int // questions in each
}

var testContext = context.Background()

// fakeLayer names a layer of a sequence.
type fakeLayer struct {
	seq   uint64
	layer int
}

func newFakeDrive(s *fakes.Store, l kvpage.Layout, heads int, codes csdshim.Codes) *fakeDrive {
	return &fakeDrive{Store: s, layout: l, heads: heads, codes: codes, scales: map[fakeLayer][]float32{}, hot: map[uint64]map[int32]bool{}, calls: map[string]int{}}
}

// called counts a call and takes its time.
func (d *fakeDrive) called(ctx context.Context, call string, layer int) error {
	d.mu.Lock()
	d.calls[call]++
	fail := d.fail
	d.mu.Unlock()
	if err := clock.Real().Sleep(ctx, time.Millisecond); err != nil {
		return err
	}
	if fail != nil {
		return fail(call, layer)
	}
	return nil
}

// count is how often a call was made.
func (d *fakeDrive) count(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[call]
}

func (d *fakeDrive) Scores() csdshim.Codes      { return d.codes }
func (d *fakeDrive) Identity() csdshim.Identity { return d.id }

func (d *fakeDrive) RoundTrip(ctx context.Context) (time.Duration, error) {
	return d.trip, d.called(ctx, "trip", 0)
}

func (d *fakeDrive) SetScales(ctx context.Context, seq uint64, layer int, scales []float32) error {
	if err := d.called(ctx, "scales", layer); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scales[fakeLayer{seq, layer}] = append([]float32(nil), scales...)
	return nil
}

// record is a group's pages; nil = the drive does not have it.
func (d *fakeDrive) record(ctx context.Context, seq uint64, layer, group int) ([]byte, error) {
	data := make([]byte, d.heads*d.layout.PageBytes())
	err := d.Memory.Read(ctx, []offload.Record{{Key: offload.Key{Seq: seq, Layer: int32(layer), Group: int32(group)}, Data: data}})
	if errors.Is(err, offload.ErrMissing) {
		return nil, nil
	}
	return data, err
}

// code is a number of a key divided by its scale.
func (d *fakeDrive) code(x, scale float32) int {
	if !(scale > 0) {
		return 0
	}
	most := 127.0
	if d.codes == csdshim.CodesInt4 {
		most = 7
	}
	return int(max(-most, min(most, math.RoundToEven(float64(x/scale)))))
}

// score is Σ query·code over all KV heads of a token of a record, divided by 2^Shift, in half precision.
func (d *fakeDrive) score(q *csdshim.Query, data []byte, place int, scales []float32) float32 {
	sum, dim := 0, d.layout.KeyDim
	key, each := make([]float32, dim), len(scales)/d.heads // one a head, or one a number
	for g := range d.heads {
		kvpage.ReadK(d.layout, data[g*d.layout.PageBytes():][:d.layout.PageBytes()], place, key)
		for i, x := range key {
			sum += int(q.Int8[g*dim+i]) * d.code(x, scales[g*each+i%each])
		}
	}
	return kernels.RoundHalf(float32(sum) * float32(math.Ldexp(1, -q.Shift)))
}

// Score implements offload.Scorer.
func (d *fakeDrive) Score(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (csdshim.Timing, error) {
	d.mu.Lock()
	d.messages = append(d.messages, 1)
	d.mu.Unlock()
	return d.answer(ctx, seq, layer, q, each)
}

func (d *fakeDrive) answer(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (csdshim.Timing, error) {
	if err := d.called(ctx, "score", layer); err != nil {
		return csdshim.Timing{}, err
	}
	d.mu.Lock()
	scales, hot, extra := d.scales[fakeLayer{seq, layer}], maps.Clone(d.hot[seq]), d.extra
	d.mu.Unlock()
	if scales == nil {
		return csdshim.Timing{}, fmt.Errorf("layer %d has no scales", layer)
	}
	var all csdshim.Block
	for group := 0; q.Limit == 0 || group*16 < q.Limit; group++ {
		data, err := d.record(ctx, seq, layer, group)
		if err != nil || data == nil {
			if data == nil && err == nil && q.Limit > 0 {
				continue // a group that is not stored
			}
			return csdshim.Timing{}, err
		}
		for place := range 16 {
			if n := int32(group*16 + place); !hot[n] && (q.Limit == 0 || int(n) < q.Limit) {
				all.Positions, all.Scores = append(all.Positions, n), append(all.Scores, d.score(q, data, place, scales))
			}
		}
	}
	n := len(all.Positions) - extra
	for at := 0; at < n; at += q.Block {
		end := min(at+q.Block, n)
		if err := each(&csdshim.Block{Positions: all.Positions[at:end], Scores: all.Scores[at:end]}); err != nil {
			return csdshim.Timing{}, err
		}
	}
	return csdshim.Timing{TotalNs: uint64(time.Millisecond), ScanBytes: uint64(n * d.heads * d.layout.KeyDim)}, nil
}

// ScoreMany implements offload.ManyScorer.
func (d *fakeDrive) ScoreMany(ctx context.Context, questions []csdshim.Question) {
	d.mu.Lock()
	d.messages = append(d.messages, len(questions))
	d.mu.Unlock()
	for i := range questions {
		q := &questions[i]
		timing, err := d.answer(ctx, q.Seq, q.Layer, q.Query, q.Each)
		timing.TotalNs *= uint64(i + 1)
		q.Done(timing, err)
	}
}

// Gather implements offload.Scorer: tokens one after another in the places of records.
func (d *fakeDrive) Gather(ctx context.Context, seq uint64, layer int, tokens []int32, dst []byte) (csdshim.Timing, error) {
	if err := d.called(ctx, "gather", layer); err != nil {
		return csdshim.Timing{}, err
	}
	d.mu.Lock()
	lost := d.lost
	d.mu.Unlock()
	if lost == seq {
		return csdshim.Timing{}, errTest
	}
	page := d.layout.PageBytes()
	for i, token := range tokens {
		data, err := d.record(ctx, seq, layer, int(token)/16)
		if err != nil || data == nil {
			return csdshim.Timing{}, fmt.Errorf("token %d of layer %d is not stored: %w", token, layer, err)
		}
		for g := range d.heads {
			to := dst[i/16*d.heads*page+g*page:][:page]
			if !kvpage.Move(d.layout, to, i%16, data[g*page:][:page], int(token)%16) {
				return csdshim.Timing{}, errors.New("a token of this layout cannot be moved")
			}
		}
	}
	return csdshim.Timing{}, nil
}

// Place implements offload.Scorer.
func (d *fakeDrive) Place(ctx context.Context, seq uint64, tokens []int32, hot bool) error {
	if err := d.called(ctx, fmt.Sprint("place ", hot), 0); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hot[seq] == nil {
		d.hot[seq] = map[int32]bool{}
	}
	for _, i := range tokens {
		if hot {
			d.hot[seq][i] = true
		} else {
			delete(d.hot[seq], i)
		}
	}
	return nil
}

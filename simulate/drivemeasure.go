package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"terrace/csdshim"
	"terrace/csdshim/profiles"
	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
)

// MeasureDrive asks the drive at a socket what it is, and times an empty question; for a policy that attends on drives, attention over some
// hundred random tokens of each layer too. What fetching takes is learnt from runs (Host.Learn). ErrArgument for a drive that does not take its profile's time, or
// whose profile is not one of those built in.
func MeasureDrive(ctx context.Context, socket string, m *model.Model, spec *policy.Spec) (*Drive, error) {
	client, err := csdshim.Dial(ctx, socket, csdshim.ClientOptions{})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	id := client.Identity()
	if _, err := profiles.Load(id.Profile); err != nil || !id.Paced() {
		return nil, fmt.Errorf("%w: drive %s (profile %s, %s clock) cannot be modelled: want csd serve --clock real and a built-in profile with rates", ErrArgument, socket, id.Profile, id.Clock)
	}
	d := &Drive{Profile: id.Profile, Keys: id.Keys, CapacityBytes: int64(id.CapacityBytes)}
	if d.Message, err = timed(64, func() error { _, err := client.Stats(ctx); return err }); err != nil {
		return nil, err
	}
	if spec.AttendsOnDrives() {
		return d, d.measureAttention(ctx, socket, m, spec)
	}
	return d, nil
}

// timed is the median of how long something takes, in seconds. Between two times a few MiB are read, as a layer's weights are: what the
// caches hold of the drive's data is what they hold while a model is computed.
func timed(times int, do func() error) (float64, error) {
	const layer = 4 << 20
	took, weights, sum := make([]float64, times), make([]byte, 16*layer), byte(0)
	for i := range took {
		for at := i % 16 * layer; at < (i%16+1)*layer; at += 64 {
			sum += weights[at]
		}
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took[i] = time.Since(began).Seconds() + float64(sum)
	}
	slices.Sort(took)
	return took[times/2], nil
}

// measureTimes is how often each call is timed.
const measureTimes = 60

func (d *Drive) measureAttention(ctx context.Context, socket string, m *model.Model, spec *policy.Spec) (err error) {
	set, err := spec.New(policy.Model{Name: m.Arch, Layers: cacheshape.Equal(m.Layers, m.Layer[0].Heads, cacheshape.KV{Heads: m.Layer[0].KVHeads, KeyDim: m.Layer[0].KeyDim, ValueDim: m.Layer[0].ValDim}), Hidden: m.Hidden, Context: m.Context})
	if err != nil {
		return err
	}
	chooses := set.Selector.(policy.DriveAttention)
	drives, err := offload.OpenDrives(ctx, []string{socket}, offload.AttendShape{Layers: m.Layers, Heads: m.Layer[0].Heads, KVHeads: m.Layer[0].KVHeads, KeyDim: m.Layer[0].KeyDim, ValueDim: m.Layer[0].ValDim, Elem: kvpage.F16}, offload.DrivesOptions{})
	if err != nil {
		return err
	}
	defer func() {
		if failed := drives.Close(); err == nil {
			err = failed
		}
	}()
	dims, tokens := chooses.Groups()
	const most = 1024
	if err := drives.Open(ctx, 1, offload.Groups{Dims: dims, Tokens: tokens, Expected: most, Columns: chooses.Attention(m.Layer[0].KeyDim, 1<<30).Dims > 0}); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rows := func(n, dim int) []byte {
		x, out := make([]float32, n*m.Layer[0].KVHeads*dim), make([]byte, 2*n*m.Layer[0].KVHeads*dim)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		kvpage.PutRow(kvpage.F16, out, x)
		return out
	}
	ask := attending{ctx: ctx, drives: drives, chooses: chooses, m: m, held: make([]int, m.Layers), rows: rows}
	for i := range m.Layer[0].Heads * m.Layer[0].KeyDim {
		ask.q = append(ask.q, float32(rng.NormFloat64())/8*float32(1+i%3))
	}
	var q equations
	for _, n := range []int{most / 4, most / 2, most} {
		keys, values := rows(n, m.Layer[0].KeyDim), rows(n, m.Layer[0].ValDim)
		for layer, at := range ask.held {
			if err := drives.Append(ctx, 1, layer, at, n-at, keys[:(n-at)*len(keys)/n], values[:(n-at)*len(values)/n]); err != nil {
				return err
			}
			ask.held[layer] = n
		}
		took, err := timed(measureTimes, ask.next)
		if err != nil {
			return err
		}
		q.add(took, 1, float64(n+1))
	}
	v := q.solve(2)
	d.Attend, d.AttendToken = v[0], v[1]
	return drives.Drop(1)
}

// attending asks a drive about one layer after another.
type attending struct {
	ctx     context.Context
	drives  *offload.Drives
	chooses policy.DriveAttention
	m       *model.Model
	q       []float32
	held    []int // tokens, by layer
	layer   int
	rows    func(n, dim int) []byte
}

func (a *attending) next() error {
	a.layer = (a.layer + 1) % a.m.Layers
	at := a.held[a.layer]
	a.held[a.layer]++
	s := offload.AttendStep{Seq: 1, Layer: a.layer, At: at, Keys: a.rows(1, a.m.Layer[0].KeyDim), Values: a.rows(1, a.m.Layer[0].ValDim), Q: a.q, Scale: 1, Out: make([]float32, a.m.Layer[0].Heads*a.m.Layer[0].ValDim),
		SparF: a.chooses.Attention(a.m.Layer[0].KeyDim, at+1)}
	return a.drives.Attend(a.ctx, &s).Wait()
}

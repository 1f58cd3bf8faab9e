package simulate

import (
	"testing"
	"time"

	"terrace/csdshim"
	"terrace/internal/kvpage"
	"terrace/offload"
)

// pacedDrive is a host's drive of 64 groups of 4 KiB, whose layer can be scored.
func pacedDrive(t *testing.T, d Drive) (*Paced, offload.Link, []csdshim.Group) {
	t.Helper()
	d.Profile, d.Keys, d.CapacityBytes = "smartssd", "ddr", 16<<20
	p := PaceHost(Host{Cores: 1, Drive: &d})
	link, err := p.Dial(t.Context(), "", csdshim.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	shape := csdshim.Shape{Layers: 1, KVHeads: 1, Codes: csdshim.CodesInt8, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64, Tokens: 16}}
	if err := link.OpenSequence(t.Context(), 1, shape); err != nil {
		t.Fatal(err)
	}
	groups := make([]csdshim.Group, 64)
	for i := range groups {
		groups[i] = csdshim.Group{Index: i, Data: make([]byte, shape.RecordBytes())}
	}
	if _, err := link.WriteGroups(t.Context(), 1, groups); err != nil {
		t.Fatal(err)
	}
	if _, err := link.SetScales(t.Context(), 1, 0, []float32{1}); err != nil {
		t.Fatal(err)
	}
	return p, link, groups
}

// TestDriveAtItsProfile: a fetch from a drive of which nothing was learnt takes what the drive's model says, which the profile's link bounds;
// learnt times come on top; what this process takes to score reaches nobody.
func TestDriveAtItsProfile(t *testing.T) {
	fetch := func(d Drive) (took, modelled time.Duration) {
		p, link, groups := pacedDrive(t, d)
		from := p.Clock.Now()
		told, err := link.Fetch(t.Context(), 1, groups)
		if err != nil {
			t.Fatal(err)
		}
		return p.Clock.Now() - from, time.Duration(told.TotalNs)
	}
	const link = 64 * 4096 * 10 / 32 * time.Nanosecond // by 3.2 GB/s
	if took, modelled := fetch(Drive{}); took != modelled || took < link {
		t.Errorf("256 KiB take %v, want %v, at least %v", took, modelled, link)
	}
	if took, modelled := fetch(Drive{Fetch: 1e-3, FetchAlone: 1e-3}); took != 2*time.Millisecond || modelled > time.Millisecond {
		t.Errorf("256 KiB of a process that takes 2 ms take %v, by the model %v", took, modelled)
	}
	for message, want := range map[float64]time.Duration{0: 31500 * time.Nanosecond, 1e-4: 100 * time.Microsecond} { // 5 µs each way and the firmware's 21.5, or as was measured
		p, link, _ := pacedDrive(t, Drive{Message: message})
		from := p.Clock.Now()
		if _, err := link.Stats(t.Context()); err != nil || p.Clock.Now()-from != want {
			t.Errorf("an empty question, a message of %g s: %v, want %v: %v", message, p.Clock.Now()-from, want, err)
		}
	}
	_, drive, _ := pacedDrive(t, Drive{})
	scored := 0
	q := &csdshim.Query{Codes: csdshim.CodesInt8, Int8: make([]int8, 64), Block: 256}
	took, err := drive.Score(t.Context(), 1, 0, q, func(b *csdshim.Block) error { scored += len(b.Positions); return nil })
	if err != nil || scored != 64*16 || took.TotalNs == 0 || took.MeasuredNs != 0 {
		t.Errorf("%d tokens scored, %+v, %v", scored, took, err)
	}
}

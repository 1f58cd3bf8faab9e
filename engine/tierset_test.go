package engine

import (
	"errors"
	"strings"
	"testing"

	"terrace/engine/tier"
	"terrace/internal/tierspec"
)

// TestTierSets: which sets of tiers are opened, and that the rest is refused
// before anything is.
func TestTierSets(t *testing.T) {
	for _, c := range []struct {
		tiers string // separated by spaces
		want  string // "" = good; else what the error says
	}{
		{"", ""},
		{"host=1MiB", ""},
		{"device=1MiB host=1MiB", ""},
		{"host=1MiB ssd=/d,1GiB", ""},
		{"ssd=/d,with,commas,1GiB host=1MiB", ""},
		{"csd=unix:/s host=1MiB", ""},
		{"host=1MiB host=2MiB", "given twice"},
		{"ssd=/d,1GiB", "needs host="},
		{"csd=unix:/s", ""}, // drives that attend need no host memory
		{"csd=unix:/s csd=unix:/t", ""},
		{"host=1MiB ssd=/d,1GiB csd=unix:/s", ""},
		{"host=1MiB ssd=/a,1MiB ssd=/b,2MiB csd=unix:/s", ""},
		{"host=1MiB csd=unix:/s ssd=/d,1GiB", "name it last"},
		{"host=1MiB ssd=/a,2MiB ssd=/b,2MiB", "name the larger last"},
		{"host=1MiB ssd=/a,1MiB ssd=/a,2MiB", "twice"},
		{"ssd=/a,1MiB ssd=/b,2MiB", "host=SIZE"},
		{"host=1MiB s3=http://x/b,1GiB", "for later runs"},
		{"host=1MiB,80MiB/s", "a rate"},
		{"host", "want device=SIZE"},
		{"host=", "want device=SIZE"},
		{"host=0", "above 0"},
		{"host=-1MiB", "above 0"},
		{"host=lots", "above 0"},
		{"ssd=1GiB", "ssd=DIR,SIZE"},
		{"csd=/s", "csd=unix:SOCKET"},
		{"csd=unix:", "csd=unix:SOCKET"},
		{"tape=1GiB", "not known"},
	} {
		var set []tier.Tier
		var err error
		for _, spec := range strings.Fields(c.tiers) {
			var one tier.Tier
			if one, err = tierspec.Parse(spec); err != nil {
				break
			}
			set = append(set, one)
		}
		if err == nil {
			err = tier.Check(set)
		}
		if c.want == "" {
			if err != nil {
				t.Errorf("%q: %v", c.tiers, err)
			}
			continue
		}
		if !errors.Is(err, ErrOption) && !errors.Is(err, tierspec.ErrSpec) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want an error that says %q", c.tiers, err, c.want)
		}
	}
}

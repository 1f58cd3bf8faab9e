package csdshim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"terrace/csdshim/profiles"
	"terrace/internal/golden"
)

// TestReplayAgainstMQSim replays recorded patterns: reads and writes end within 8 % of the simulator, both mixed within 20 %,
// medians within 3 and 5 %, and never before perfect overlap would.
func TestReplayAgainstMQSim(t *testing.T) {
	text, err := os.ReadFile(golden.Shared(t, "data", "golden", "flash", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	off := map[string][]float64{}
	for line := range strings.Lines(string(text)) {
		var c struct {
			Name, Profile, Kind string
			Requests            [][4]any
			Makespan            float64 `json:"makespan_us"`
			Lower               float64 `json:"lower_us"`
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		p, err := profiles.Load(golden.Shared(t, "data", "golden", "flash", "profiles", c.Profile+".toml"))
		if err != nil {
			t.Fatal(err)
		}
		var trace strings.Builder
		for _, r := range c.Requests {
			fmt.Fprintf(&trace, "{\"at_us\":%v,\"op\":%q,\"page\":%.0f,\"pages\":%.0f}\n", r[0], r[1], r[2], r[3])
		}
		r, err := Replay(strings.NewReader(trace.String()), p)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		e := math.Abs(r.MakespanUs/c.Makespan - 1)
		off[c.Kind] = append(off[c.Kind], e)
		if limit := map[string]float64{"read": 0.08, "write": 0.08, "mixed": 0.2}[c.Kind]; e > limit || r.MakespanUs < 0.999*c.Lower {
			t.Errorf("%s: %.1f µs, MQSim %.1f, at least %.1f", c.Name, r.MakespanUs, c.Makespan, c.Lower)
		}
	}
	for kind, limit := range map[string]float64{"read": 0.03, "write": 0.03, "mixed": 0.05} {
		list := off[kind]
		slices.Sort(list)
		if m := list[len(list)/2]; m > limit {
			t.Errorf("%s: %.3f in the median, want %.3f", kind, m, limit)
		}
	}
}

// TestReplayRefuses: a bad line is named.
func TestReplayRefuses(t *testing.T) {
	p, err := profiles.Load("instcsd")
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"at_us":5,"op":"read","page":0,"pages":1}` + "\n"
	if r, err := Replay(strings.NewReader(good), p); err != nil || len(r.CompletedUs) != 1 || r.MakespanUs < 43 || r.Source != "modelled" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{`{"at_us":6,"op":"erase","page":0,"pages":1}`, `{"at_us":4,"op":"read","page":0,"pages":1}`, `{"at_us":6,"op":"read","page":-1,"pages":1}`,
		`{"at_us":6,"op":"read","page":0,"pages":0}`, `{"at_us":6,"op":"read","page":0,"pages":99999999999}`, `{"at_us":6,"op":"read","page":0}`,
		`{"at_us":6,"op":"read","page":0,"pages":1,"x":1}`, `{"at_us":6,"op"`, `[]`, `{"at_us":6,"op":"read","page":0,"pages":1} {}`, strings.Repeat("x", 9000)} {
		if _, err := Replay(strings.NewReader(good+bad+"\n"), p); !errors.Is(err, ErrTrace) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %v", bad, err)
		}
	}
}

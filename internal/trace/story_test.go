package trace

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestStoryIsReadBack: rows, times and counts of a request; beyond the most only their number.
func TestStoryIsReadBack(t *testing.T) {
	s := NewStory(3)
	s.Add("queue", 0, 1500*time.Nanosecond, "", 0)
	s.Add("prompt", 2*time.Microsecond, 5*time.Microsecond, "tokens", 7)
	s.Add("prompt", 9*time.Microsecond, 6*time.Microsecond, "tokens", 1)
	s.Add("decode", 0, 0, "", 0)
	var out bytes.Buffer
	if err := s.Write(&out, `a "request"`); err != nil {
		t.Fatal(err)
	}
	var tl timeline
	if err := json.Unmarshal(out.Bytes(), &tl); err != nil {
		t.Fatal(err, out.String())
	}
	var spans, rows []string
	for _, e := range tl.TraceEvents {
		if e.Ph == "X" {
			spans = append(spans, e.Name)
		} else {
			rows = append(rows, e.Args["name"].(string))
		}
	}
	if strings.Join(spans, " ") != "queue prompt prompt" || strings.Join(rows, "; ") != `a "request" (1 later spans are left out); queue; prompt` {
		t.Errorf("spans %q, rows %q", spans, rows)
	}
	if e := tl.TraceEvents[4]; e.Ts != 2 || e.Dur != 3 || e.Tid != 2 || e.Args["tokens"] != 7.0 {
		t.Errorf("%+v", e)
	}
	var none *Story
	none.Add("queue", 0, 1, "", 0)
	if err := none.Write(&out, ""); err != nil {
		t.Error(err)
	}
}

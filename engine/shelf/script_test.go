package shelf

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"terrace/kvmanager/contexts"
)

// TestScript: what a keeper knows and where it lies, told as prompts come. A prompt is written as parts of texts: a:150 b:20-90. After each
// command the accounts of tiers and contexts must agree (served.holds).
func TestScript(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		var s *served
		texts := map[string][]int{}
		part := func(d *datadriven.TestData, spec string) []int {
			name, span, _ := strings.Cut(spec, ":")
			from, to, several := strings.Cut(span, "-")
			if !several {
				from, to = "0", from
			}
			a, errA := strconv.Atoi(from)
			b, errB := strconv.Atoi(to)
			if errA != nil || errB != nil || a > b {
				d.Fatalf(t, "%s: want NAME:END or NAME:FROM-END", spec)
			}
			if texts[name] == nil {
				texts[name] = text(t, s.r, 200, uint64(name[0]))
			}
			return texts[name][a:b:b]
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "open" { // KEEPER host=BYTES
				var placement string
				var bytes int64
				d.ScanArgs(t, "placement", &placement)
				d.ScanArgs(t, "host", &bytes)
				s = keeper(t, strings.ReplaceAll(placement, ";", ","), "", contexts.Spec{Kind: "host", CapacityBytes: bytes})
				texts = map[string][]int{}
				return ""
			}
			out := ""
			switch d.Cmd {
			case "ask":
				var ids []int
				for _, spec := range strings.Fields(d.Input) {
					ids = append(ids, part(d, spec)...)
				}
				_, reused := s.ask(ids)
				out = fmt.Sprintf("%d tokens, %d found\n", len(ids), reused.Tokens)
			case "rest":
				s.rest()
			default:
				d.Fatalf(t, "unknown command")
			}
			s.holds()
			out += fmt.Sprintf("contexts of %v blocks\n", s.lengths())
			for _, f := range s.Figures().Forms {
				out += fmt.Sprintf("%s %s keep=%g: %d of %d bytes\n", f.Tier, f.Method, f.Keep, f.Contexts, f.Bytes)
			}
			return out
		})
	})
}

package retrieval

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"terrace/csdshim"
	"terrace/internal/clock"
	"terrace/policy"
)

// TestScenarios runs testdata/NAME: texts without a model, of random keys, values and queries, and what is picked, read and
// waited for in each pass.
//
//	open [blocks=B] [drive=int8|int4]   a cache of 3 layers, 2 KV heads and 4 heads; with B blocks of host memory and a backing
//	                             store, which scores keys; the input is the policy that decides how keys lie
//	text NAME | fork NAME TO     under the policy that is the input
//	prompt NAME n=N [chunk=C]    reads N tokens, C in a pass
//	step NAME... [n=N]           decode steps of these texts together; picks and records of the last one are shown
//	cut NAME n=N | free NAME
//	wait                         until nothing is under way
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s scenario
				datadriven.RunTest(t, f, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
				s.close(t)
			})
		})
	}
}

// summary takes what was moved so far out of the log, and says how much that was.
func (s *scenario) summary(out *strings.Builder, say bool) {
	if s.store == nil || !say {
		return
	}
	synctest.Wait()
	reads, writes := 0, 0
	for line := range strings.Lines(s.store.Log()) {
		if strings.HasPrefix(line, "write") {
			writes++
		} else {
			reads++
		}
	}
	fmt.Fprintf(out, "steps before the last: %d runs of records read, %d written\n", reads, writes)
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	if d.Cmd == "open" {
		s.close(t)
		*s = *openScenario(t, parsed(t, d.Input), setup{blocks: number(t, d, "blocks", 0), codes: codesOf(t, d)})
	} else if err := s.command(t, d, &out); err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
	}
	synctest.Wait()
	if s.store != nil {
		out.WriteString(s.store.Log())
		if n := s.queue.Stats().Waits; n > s.waits {
			out.WriteString("waited\n") // how often depends on which of two transfers that end together is seen first
			s.waits = n
		}
	}
	for _, name := range s.names() {
		x := s.texts[name]
		fmt.Fprintf(&out, "%s: %d read", name, x.Read())
		if n := x.SketchBytes(); n > 0 {
			fmt.Fprintf(&out, ", %d bytes to scan", n)
		}
		if c, ok := x.res.(*cached); ok && c.cache != nil {
			st := c.cache.Stats()
			fmt.Fprintf(&out, ", cache of %d slots a shard: %d picked, %d missed, %d bytes", c.budget.limit, st.Picked, st.Missed, st.Bytes)
		}
		out.WriteString("\n")
	}
	fmt.Fprintf(&out, "%d bytes in use\n", s.shared.o.KV.Stats().InUseBytes)
	s.check(t)
	return out.String()
}

// codesOf is what a drive scores by; none is a store that does not.
func codesOf(t *testing.T, d *datadriven.TestData) csdshim.Codes {
	name := ""
	if d.HasArg("drive") {
		d.ScanArgs(t, "drive", &name)
	}
	return map[string]csdshim.Codes{"int8": csdshim.CodesInt8, "int4": csdshim.CodesInt4}[name]
}

// number is an argument, or a default.
func number(t *testing.T, d *datadriven.TestData, name string, or int) int {
	if d.HasArg(name) {
		d.ScanArgs(t, name, &or)
	}
	return or
}

func (s *scenario) command(t *testing.T, d *datadriven.TestData, out *strings.Builder) error {
	n, chunk := number(t, d, "n", 1), number(t, d, "chunk", 64)
	if d.Cmd == "wait" {
		_ = clock.Real().Sleep(context.Background(), time.Second)
		return nil
	}
	name := d.CmdArgs[0].Key
	x := s.texts[name]
	switch d.Cmd {
	case "text":
		s.text(t, name, parsed(t, d.Input))
	case "fork":
		f, err := x.Fork(SequenceOptions{Policy: parsed(t, d.Input)})
		if err != nil {
			return err
		}
		s.texts[d.CmdArgs[1].Key] = &scenarioText{Sequence: f, seed: x.seed}
	case "prompt":
		return s.prompt(x, n, chunk)
	case "step":
		var texts []*scenarioText
		for _, a := range d.CmdArgs {
			if y := s.texts[a.Key]; y != nil {
				texts = append(texts, y)
			}
		}
		for i := range n {
			s.summary(out, i == n-1 && n > 1)
			if err := s.step(texts...); err != nil {
				return err
			}
		}
		for _, y := range texts {
			for _, line := range y.seen {
				fmt.Fprintln(out, line)
			}
		}
	case "cut":
		return x.Truncate(int32(n))
	case "free":
		delete(s.texts, name)
		return x.Free()
	default:
		t.Fatalf("%s: command %q is not known", d.Pos, d.Cmd)
	}
	return nil
}

// TestResidencyChangesNothing: what steps read and what attention gives do not depend on where tokens lie.
func TestResidencyChangesNothing(t *testing.T) {
	for _, name := range []string{"full", "h2o:budget=100", "snapkv:budget=100", "quest:budget=96", "hillinfer:alpha=0.2", "sparq:budget=64"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := parsed(t, name)
				var steps []string
				for _, blocks := range []int{0, 300, 72} {
					s := openScenario(t, spec, setup{blocks: blocks})
					steps = append(steps, s.readAndStep(t, spec)...)
					if reads := s.reads(); blocks == 72 && reads == 0 {
						t.Errorf("nothing was read from the backing store")
					}
					s.close(t)
				}
				for i, got := range steps {
					if got != steps[i%scenarioSteps] {
						t.Errorf("store %d, step %d: picks or outputs differ from those in host memory", i/scenarioSteps, i%scenarioSteps)
					}
				}
				if len(steps) != 3*scenarioSteps {
					t.Errorf("%d steps", len(steps))
				}
			})
		})
	}
}

// scenarioSteps are taken after a prompt.
const scenarioSteps = 24

// readAndStep reads a prompt, takes steps, and returns what each picked and computed.
func (s *scenario) readAndStep(t *testing.T, spec *policy.Spec) (steps []string) {
	t.Helper()
	x := s.text(t, "a", spec)
	if err := s.prompt(x, 400, 64); err != nil {
		t.Error(err)
		return nil
	}
	for i := range scenarioSteps {
		if err := s.step(x); err != nil {
			t.Errorf("step %d: %v", i, err)
			return steps
		}
		steps = append(steps, fmt.Sprint(x.picks, x.out))
	}
	if c, ok := x.res.(*cached); ok && c.cache == nil {
		t.Error("no token cache")
	}
	return steps
}

// reads is how many records came from the backing store.
func (s *scenario) reads() int {
	if s.store == nil {
		return 0
	}
	n, _ := s.store.Moved()
	return n
}

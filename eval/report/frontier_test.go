package report

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/run"
)

// agreement is a run of two tasks with n prompts each: x at 10 % moves a fifth and is off by 0.1·(1+i), x at 20 % twice the bytes
// and half as far; y says nothing of bytes.
func agreement(t *testing.T, n int, lacks string) string {
	t.Helper()
	dir := t.TempDir()
	policies := []string{"full", "x:budget=10%,score=int4", "x:budget=20%,score=int4", "y"}
	f, err := run.Open(dir, run.Options{Suite: "agreement", Policies: policies, Model: eval.Model{Name: "m.gguf"}, Settings: map[string]any{"limit": n}}, run.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := fixed{tasks: []string{"a", "b"}, n: n}
	tr := run.NewTracker(f, s, s.samples(), nil)
	for k, x := range s.samples() {
		for i, p := range policies {
			if p == lacks && k == len(s.samples())-1 {
				continue
			}
			score := 1 - 0.1*float64(i)
			o := eval.Outcome{Task: x.Task, ID: x.ID, Policy: p, Score: &score, Prompt: 1000 + k, PromptHash: x.Task + x.ID, Values: map[string]float64{"kl": 0}}
			if i == 1 || i == 2 {
				o.Values = map[string]float64{"kl": 0.1 * float64(1+k) / float64(i), "bytes_share": 0.2 * float64(i), "kv_mib_per_token": 3, "scan_mib_per_token": 1}
			}
			if err := tr.Add(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := tr.Finish(); lacks == "" && err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFrontier(t *testing.T) {
	c := load(t, agreement(t, 4, ""))
	f, err := c.Frontier()
	if err != nil {
		t.Fatal(err)
	}
	panels := f.panels
	if len(panels) != 1 || len(panels[0].points) != 2 {
		t.Fatalf("%+v", panels)
	}
	p := panels[0].points[0]
	if p.Policy != "x:budget=10%,score=int4" || p.line != "x int4" || p.Prompts != 8 || math.Abs(p.KL.Mean-0.45) > 1e-9 || math.Abs(p.Bytes-0.2) > 1e-9 || math.Abs(p.KV-0.15) > 1e-9 || math.Abs(p.Scan-0.05) > 1e-9 {
		t.Errorf("%+v", p)
	}
	if !(p.KL.Low < 0.4 && p.KL.Low > 0.2 && p.KL.High > 0.5 && p.KL.High < 0.7) || p.Same != (estimate{0.9, 0.9, 0.9}) && math.Abs(p.Same.Low-0.9) > 1e-9 {
		t.Errorf("intervals %+v %+v", p.KL, p.Same)
	}
	var b bytes.Buffer
	if err := f.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(b.Bytes())).ReadAll()
	if err != nil || len(rows) != 3 || rows[1][1] != p.Policy || rows[1][3] != "0.2" || rows[2][6] != "0.225" {
		t.Errorf("%v %v", rows, err)
	}
	var svg bytes.Buffer
	if err := f.WriteSVG(&svg, "by <hand>"); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for d := xml.NewDecoder(&svg); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					count[a.Value[strings.LastIndex(a.Value, " ")+1:]]++
				}
			}
		}
	}
	if count["mark"] != 2 || count["thread"] != 1 || count["whisker"] != 2 || count["name"] != 1 {
		t.Errorf("drawn: %v", count)
	}
}

func panelsOf(t *testing.T, c *Comparison) []frontierPanel {
	t.Helper()
	f, err := c.Frontier()
	if err != nil {
		t.Fatal(err)
	}
	return f.panels
}

// TestFrontierFromCSV: what a table is drawn from is what it was printed of.
func TestFrontierFromCSV(t *testing.T) {
	f, err := load(t, agreement(t, 4, "")).Frontier()
	if err != nil {
		t.Fatal(err)
	}
	var table, again, picture, redrawn bytes.Buffer
	if err := f.WriteCSV(&table); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	turned := strings.Join([]string{lines[0], lines[2], lines[1]}, "\n")
	for _, text := range []string{table.String(), turned} { // the picture is that of numbers to four digits
		read, err := ReadFrontier(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		again.Reset()
		redrawn.Reset()
		if err := errors.Join(read.WriteCSV(&again), read.WriteSVG(&redrawn, "n")); err != nil || again.String() != table.String() {
			t.Errorf("%v: %q, want %q", err, again.String(), table.String())
		}
		if picture.Len() == 0 {
			if err := f.WriteSVG(&picture, "n"); err != nil || picture.Len() != redrawn.Len() {
				t.Errorf("%v: pictures of %d and %d bytes", err, picture.Len(), redrawn.Len())
			}
			picture.Reset()
			picture.Write(redrawn.Bytes())
		}
		if picture.String() != redrawn.String() {
			t.Error("the order of lines changes the picture")
		}
	}
	for name, bad := range map[string]string{
		"line 1": "a,b\n", "no line": lines[0] + "\n", "line 2: prompts": strings.Replace(table.String(), ",8,", ",x,", 1), "line 3: bytes_share": lines[0] + "\n" + lines[1] + "\n" + strings.Replace(lines[2], ",8,", ",8,-", 1),
		"line 2: kl_high": lines[0] + "\n\"p\",x,8,0.1,0.1,0,0.1,0.1,NaN,1,1,1\n", "wrong number of fields": lines[0] + "\np,x\n", "line 2: kv_share": lines[0] + "\np,x,8,0.1,,0,0.1,0.1,1,1,1,1\n",
	} {
		if _, err := ReadFrontier(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %s: %v", name, err)
		}
	}
}

// A prompt that one policy has not answered counts for none; fewer than eight prompts have no interval; without bytes there is nothing.
func TestFrontierOfAnIncompleteRun(t *testing.T) {
	p := panelsOf(t, load(t, agreement(t, 4, "x:budget=20%,score=int4")))[0].points
	if p[0].Prompts != 7 || p[1].Prompts != 7 || p[0].KL.Low != p[0].KL.High || math.Abs(p[0].KL.Mean-0.4) > 1e-9 {
		t.Errorf("%+v", p)
	}
	c := load(t, makeRun(t, "longbench", []string{"full", "x"}, []string{"a"}, 2, func(string, string, int) float64 { return 1 }, nil))
	if _, err := c.Frontier(); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
}

func TestLogScale(t *testing.T) {
	s := logScale(0.002, 0.9, 100, 0)
	if ticks := s.ticks(); len(ticks) != 8 || ticks[0].Label != "0.002" || ticks[7].Label != "0.5" || math.Abs(ticks[0].At-100) > 1e-9 {
		t.Errorf("%+v", ticks)
	}
	if math.Abs(s.at(math.Sqrt(0.002*0.9))-50) > 1e-9 {
		t.Errorf("the geometric mean is at %g, want the middle", s.at(math.Sqrt(0.002*0.9)))
	}
	if logScale(45, 80, 0, 1).log {
		t.Error("one tick: want a plain scale")
	}
}

func TestLineOf(t *testing.T) {
	for spec, want := range map[string]string{"retroinfer": "retroinfer", "topp:select=topk,score=int4,budget=20%,p=0.85": "topp topk int4", "tailcodes:budget=5%,part=4": "tailcodes part=4", "quest:budget=1024,dense_layers=0": "quest"} {
		if got := lineOf(spec); got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

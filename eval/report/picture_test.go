package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/run"
)

// kinds is a comparison of three tasks of two kinds: full has 0.6 of task a, 0.3 of b, 0.2 of c, the others a tenth less.
func kinds(t *testing.T, policies ...string) *Comparison {
	t.Helper()
	score := map[string]float64{"a": 0.6, "b": 0.3, "c": 0.2}
	c := load(t, makeRun(t, "longbench", policies, []string{"a", "b", "c"}, 2, func(p, task string, i int) float64 {
		v := score[task] + 0.02*float64(2*i-1)
		if p != "full" {
			v -= 0.1
		}
		return v
	}, nil))
	for _, s := range c.Groups[0].Series {
		for name, task := range s.Tasks {
			task.Metric.Group = map[string]string{"a": "reading", "b": "reading", "c": "code"}[name]
			s.Tasks[name] = task
		}
	}
	c.Groups[0].groupTasks()
	return c
}

func TestKindsOfTasks(t *testing.T) {
	g := kinds(t, "full", "x:budget=0.5").Groups[0]
	m := g.Series[1].Groups["reading"] // 50 and 20 %, each ± 2
	if strings.Join(g.Kinds, ",") != "reading,code" || math.Abs(m.Score-35) > 1e-9 || m.N != 4 || math.Abs(m.StdErr-math.Sqrt(2*2*2)/2) > 1e-9 {
		t.Errorf("%v %+v", g.Kinds, m)
	}
	if one := meanOf([]run.TaskResult{{Score: run.Score{Score: 4, StdErr: 1, N: 5}}, {Score: run.Score{Score: 2, N: 1}}}); one.Score != 3 || one.StdErr != 0 || one.N != 6 {
		t.Errorf("a task of one sample: %+v", one)
	}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := kinds(t, "full", "x:budget=0.5").WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	want := "| # | policy | score ± s.e. | against full (95 %) | reading | code | KV held | TTFT | n |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n" +
		"| 1 | `full` | 36.67 ± 1.15 | – | 45.0 | 20.0 | 1MiB | 0.10 s | 6 |\n" +
		"| 2 | `x:budget=0.5` | 26.67 ± 1.15 | – | 35.0 | 10.0 | 2MiB | 0.20 s | 6 |\n" +
		"\n| task | full | x:budget=0.5 |\n| --- | --- | --- |\n| a | 60.00 ± 2.00 | 50.00 ± 2.00 |\n| b | 30.00 ± 2.00 | 20.00 ± 2.00 |\n| c | 20.00 ± 2.00 | 10.00 ± 2.00 |\n" +
		"\n2 (x:budget=0.5): 6 samples with equal prompts in 1 (full), a difference needs 8\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// The picture is one well-formed file without scripts or links, and draws every series in both charts.
func TestPicture(t *testing.T) {
	var b bytes.Buffer
	g := kinds(t, "full", "x:budget=0.5", "x:budget=0.25", "y").Groups[0]
	if err := g.WritePicture(&b, "made <by> hand"); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	marks := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" && strings.HasSuffix(a.Value, " mark") {
					marks++
				}
			}
		}
	}
	if want := 2*4 + 4; marks != want {
		t.Errorf("%d markers, want %d: four in each chart and in the legend", marks, want)
	}
	text := b.String()
	for _, want := range []string{"2 x 0.5", "made &lt;by&gt; hand", "prefers-color-scheme: dark", "median TTFT", "MiB"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if regexp.MustCompile(`<script|href|url\(|@import|NaN`).MatchString(text) {
		t.Error("something from elsewhere, or NaN")
	}
	if err := (&Group{Metric: eval.Metric{Kind: eval.Percent}}).WritePicture(io.Discard, ""); !errors.Is(err, ErrNothing) {
		t.Errorf("nothing to draw: %v", err)
	}
}

// Labels of points at one place do not lie on each other.
func TestLabelsOfACluster(t *testing.T) {
	points := make([]point, 8)
	for i := range points {
		points[i] = point{X: 200 + float64(i%3), Y: 150 + float64(i%2)}
	}
	placeLabels(points, nil, 46, 384, 14, 256)
	for i, p := range points {
		for _, q := range points[:i] {
			if math.Abs(p.LX-q.LX) < 2*labelHalfWidth-1 && math.Abs(p.LY-q.LY) < 2*labelHalfHeight-1 {
				t.Errorf("labels at %.0f %.0f and %.0f %.0f", p.LX, p.LY, q.LX, q.LY)
			}
		}
	}
}

package simulate

import (
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"terrace/weights/stream"
)

// TestMixtureShapes: the matrices add up to what is published, in all and of one token.
func TestMixtureShapes(t *testing.T) {
	for name, want := range map[string][2]float64{ // numbers of the model and, embedding aside, of a token, as published
		"gpt-oss-20b": {20.91e9, 3.61e9}, "gpt-oss-120b": {116.83e9, 5.13e9}, "Qwen3.6-35B-A3B": {34.7e9, 2.9e9}, "GLM-4.7-Flash": {29.9e9, 3.3e9},
	} {
		m := mixtures[name]
		plan, err := m.plan()
		if err != nil {
			t.Fatal(err)
		}
		all := 0.0
		count := func(u stream.Unit) {
			for i := range u {
				all += float64(u[i].W.Rows()) * float64(u[i].W.Cols())
			}
		}
		for _, u := range plan.Pinned {
			count(u)
		}
		routed, layers := 0.0, 0
		for _, list := range plan.Experts {
			before := all
			for _, u := range list {
				count(u)
			}
			if routed += all - before; len(list) > 0 {
				layers++
			}
		}
		active := all - routed + routed*float64(m.used)/float64(m.experts) - float64(m.vocab*m.hidden)
		if math.Abs(all/want[0]-1) > 0.03 || math.Abs(active/want[1]-1) > 0.12 || layers != m.layers-m.dense {
			t.Errorf("%s: %.3g numbers, %.3g of a token, want %.3g and %.3g; %d layers with experts", name, all, active, want[0], want[1], layers)
		}
	}
}

// TestDrawnChoices: distinct experts, as many predicted rightly as asked for, and ranks in proportion to their powers.
func TestDrawnChoices(t *testing.T) {
	m := mixtures["gpt-oss-20b"]
	const tokens = 400
	for _, skew := range []float64{0, 1} {
		c := drawChoices(&m, tokens, skew, 0.75, 1)
		right, times := 0, make([]int, m.experts)
		for n := range c.used {
			for l, list := range c.used[n] {
				for i, e := range list {
					if slices.Index(list, e) != i || slices.Index(c.likely[n][l], c.likely[n][l][i]) != i {
						t.Fatalf("token %d layer %d: %v, predicted %v", n, l, list, c.likely[n][l])
					}
					if slices.Contains(c.likely[n][l], e) {
						right++
					}
					if i == 0 && l == 0 {
						times[e]++
					}
				}
			}
		}
		if share := float64(right) / float64(tokens*m.layers*m.used); math.Abs(share-0.75) > 0.01 {
			t.Errorf("skew %g: %.3f are predicted", skew, share)
		}
		sum := 0.0
		for r := range m.experts {
			sum += math.Pow(float64(r+1), -skew)
		}
		if got, want := float64(slices.Max(times))/tokens, 1/sum; got < 0.8*want || got > want+0.05 {
			t.Errorf("skew %g: the expert of the first rank is drawn first in %.3f of the tokens, want %.3f", skew, got, want)
		}
	}
}

// TestExpertStream: rows of the promised form; by a closed form where all fits and nothing does; and more memory, a faster disk, skewed
// choices and good predictions each help.
func TestExpertStream(t *testing.T) {
	value := func(trace, memory, disk string, more ...string) map[string]float64 {
		t.Helper()
		r, err := Run("expert-stream", append([]string{"model=gpt-oss-20b", "layers=6", "vocab=1000", "other_bytes=0", "warm=80", "tokens=40", "trace=" + trace, "memory_GB=" + memory, "disk_GBps=" + disk}, more...))
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, row := range r.Rows {
			checkRow(t, r, row)
			out[row.Metric] = row.Value
		}
		return out
	}
	m := mixtures["gpt-oss-20b"]
	m.layers, m.vocab = 6, 1000
	plan, err := m.plan()
	if err != nil {
		t.Fatal(err)
	}
	whole := value("zipf", "64", "1", "skew=0")
	token := float64(plan.head) + 6*float64(4*plan.expert+2*plan.router+plan.in[0]+plan.out[0])
	if want := 1 / (token/4e10 + 6*5e-5); math.Abs(whole["tokens_per_s"]/want-1) > 0.02 || whole["hits"] < 0.99 {
		t.Errorf("all in memory: %v, want %.4g tokens/s", whole, want)
	}
	none := value("uniform", "0.3", "1", "host_bps=1e15", "form_bps=0", "layer_s=0", "latency_s=0", "predicted=0")
	if want := 1e9 / none["read_a_token"]; math.Abs(none["tokens_per_s"]/want-1) > 0.01 || none["hits"] > 0.1 {
		t.Errorf("a disk alone: %v, want %.4g tokens/s", none, want)
	}
	hidden := value("uniform", "0.4", "0.9", "host_bps=1e9", "form_bps=0", "layer_s=0", "latency_s=0", "predicted=1")
	if hidden["of_bound"] < 0.98 || hidden["wasted"] != 0 {
		t.Errorf("reads that end while the layer before computes: %v, want the time of computing", hidden)
	}
	base := value("uniform", "1.2", "3.5")
	for name, better := range map[string]map[string]float64{
		"more memory": value("uniform", "2", "3.5"), "a faster disk": value("uniform", "1.2", "7"), "skewed choices": value("zipf", "1.2", "3.5"),
	} {
		if better["tokens_per_s"] < 1.05*base["tokens_per_s"] || better["of_bound"] > 1 {
			t.Errorf("%s: %v, without %v", name, better, base)
		}
	}
	if blind := value("uniform", "1.2", "3.5", "predicted=0"); blind["read_a_token"] > base["read_a_token"] || blind["tokens_per_s"] < 0.95*base["tokens_per_s"] || blind["predicted"] != 0 || blind["wasted"] != 1 {
		t.Errorf("predictions that are never right are followed seldom: %v, of 0.8 %v", blind, base)
	}
	if few := value("uniform", "0.1", "1"); few["least_memory"] <= 1e8 || few["tokens_per_s"] != 0 {
		t.Errorf("less memory than a step needs: %v", few)
	}
	for _, bad := range []string{"model=gpt-oss", "trace=recent", "layers=25", "form=Q4_K", "form=Q9", "disk_GBps=0", "host_bps=0", "tokens=0", "tokens=1e5", "warm=0.5", "vocab=1e9"} {
		sets := []string{"model=gpt-oss-20b", "memory_GB=64", "disk_GBps=1", bad}
		if _, err := Run("expert-stream", sets); !errors.Is(err, ErrArgument) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestRecordedChoices: recorded choices, with their own predictions, are passed as drawn ones are, and what the store's rule finds of
// them lies below the optimum; a file of another shape, or too short, is refused.
func TestRecordedChoices(t *testing.T) {
	m := mixtures["gpt-oss-20b"]
	m.layers = 3
	drawn := drawChoices(&m, 60, 0.7, 0.8, 1)
	write := func(c stream.Choices) string {
		t.Helper()
		f, err := os.Create(filepath.Join(t.TempDir(), "choices"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Write(f), f.Close()); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	of := func(likely bool) (c stream.Choices) {
		c = stream.Choices{Model: "m", Layers: m.layers, Experts: m.experts, Used: m.used}
		for n := range drawn.used {
			token := stream.Chosen{Used: drawn.used[n]}
			if likely {
				token.Likely = drawn.likely[n]
			}
			c.Tokens = append(c.Tokens, token)
		}
		return c
	}
	run := func(sets ...string) (map[string]float64, error) {
		r, err := Run("expert-stream", append([]string{"model=gpt-oss-20b", "layers=3", "vocab=1000", "other_bytes=0", "warm=40", "tokens=20", "memory_GB=0.7", "disk_GBps=2"}, sets...))
		if err != nil {
			return nil, err
		}
		out := map[string]float64{}
		for _, row := range r.Rows {
			out[row.Metric] = row.Value
		}
		return out, nil
	}
	same, err := run("trace=zipf", "skew=0.7", "predicted=0.8")
	if err != nil {
		t.Fatal(err)
	}
	both := write(of(true))
	if got, err := run("trace=recorded", "choices="+both); err != nil || !maps.Equal(got, same) {
		t.Errorf("recorded %v, drawn %v: %v", got, same, err)
	}
	blind, err := run("trace=recorded", "choices="+write(of(false)))
	if err != nil || blind["predicted"] != 0 || blind["kept"] != same["kept"] || blind["read_a_token"] >= same["read_a_token"] {
		t.Errorf("without predictions %v, with %v: %v", blind, same, err)
	}
	if same["kept"] <= 0.2 || same["kept"] >= same["kept_optimum"] || same["kept_optimum"] >= 1 {
		t.Errorf("the store's rule finds %.3f, at best it is %.3f", same["kept"], same["kept_optimum"])
	}
	short := of(true)
	short.Tokens = short.Tokens[:59]
	for _, bad := range [][]string{{}, {"choices=" + both + "x"}, {"choices=" + write(short)}, {"choices=" + both, "layers=4"}, {"choices=" + both, "model=gpt-oss-120b"}} {
		if _, err := run(append([]string{"trace=recorded"}, bad...)...); !errors.Is(err, ErrArgument) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

package simulate

import (
	"encoding/csv"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"terrace/internal/golden"
)

var aNumber = regexp.MustCompile(`-?[0-9]+(?:[.,][0-9]+)*`)

// numbersOf are the numbers of a text, also without the sign that a dash of a range may be.
func numbersOf(text string) (list []float64) {
	for _, word := range aNumber.FindAllString(strings.ReplaceAll(text, "−", "-"), -1) {
		if v, err := strconv.ParseFloat(strings.ReplaceAll(word, ",", ""), 64); err == nil {
			list = append(list, v, math.Abs(v))
		}
	}
	return list
}

// stands says whether a value is among numbers, or is the difference of two.
func stands(v float64, list []float64) bool {
	for _, a := range list {
		if math.Abs(a-v) < 1e-9 {
			return true
		}
		for _, b := range list {
			if math.Abs(a-b-v) < 1e-9 {
				return true
			}
		}
	}
	return false
}

// TestAccuracyIsPublished: each measured value and interval stands on the page that it names, in the words that it quotes; what is not
// measured says why.
func TestAccuracyIsPublished(t *testing.T) {
	seen := map[string]bool{}
	for id, list := range accuracies() {
		if find(id) == nil {
			t.Errorf("no experiment %s", id)
		}
		for i := range list {
			a := &list[i]
			name := id + ": " + a.Claim
			if seen[name] || a.Claim == "" || a.Where == "" || a.Model == "" || a.Unit == "" || !slices.Contains([]string{"equal", "above", "below", "apart"}, a.Asks) || a.Asks == "equal" && a.Paper == nil {
				t.Errorf("%s: twice, or without what it needs: %+v", name, *a)
			}
			seen[name] = true
			if a.Ours == nil {
				if a.Reason == "" || a.Page != "" || a.N != 0 || a.Low != nil {
					t.Errorf("%s is not measured: %+v", name, *a)
				}
				continue
			}
			text, err := os.ReadFile("../docs/" + a.Page)
			if n := strings.Count(oneLine(string(text)), a.Quote); err != nil || n != 1 || a.N < 1 || a.On == "" {
				t.Errorf("%s: %q is %d times on %s, want once: %v", name, a.Quote, n, a.Page, err)
			}
			numbers := numbersOf(a.Quote)
			for _, v := range []*float64{a.Ours, a.Low, a.High} {
				if v != nil && !stands(*v, numbers) {
					if !(*v == 0 && strings.Contains(a.Quote, "equal")) {
						t.Errorf("%s: %v is not in %q", name, *v, a.Quote)
					}
				}
			}
		}
	}
	for _, id := range []string{"hillinfer-fig11", "instinfer-fig11", "sliminfer-tab1", "sliminfer-tab3", "sliminfer-figA", "sliminfer-figC", "sliminfer-figD", "sliminfer-fig7", "evicpress-fig3", "evicpress-fig4", "evicpress-fig5", "evicpress-fig7"} {
		if len(accuracies()[id]) == 0 {
			t.Errorf("%s has no statement", id)
		}
		if slices.Contains(slow, id) {
			continue
		}
		if r, err := Run(id, nil); err != nil || len(r.Accuracy) != len(accuracies()[id]) {
			t.Errorf("%s has %d statements, and answers with others: %v", id, len(accuracies()[id]), err)
		}
	}
}

// TestAccuracyIsPrinted: what is called the paper's is in the papers' tables, differences worked out of it.
func TestAccuracyIsPrinted(t *testing.T) {
	tables := golden.Shared(t, "papers", "tables")
	for id, list := range accuracies() {
		for i := range list {
			a := &list[i]
			if a.Printed == "" {
				continue
			}
			text, err := os.ReadFile(tables + "/" + a.Table)
			if err != nil {
				t.Errorf("%s: %v", a.Claim, err)
				continue
			}
			for _, v := range aNumber.FindAllString(a.Printed, -1) {
				if !regexp.MustCompile(`(?m)(^|,)` + regexp.QuoteMeta(v) + `0*(,|$)`).Match(text) {
					t.Errorf("%s, %s: %s is not in %s", id, a.Claim, v, a.Table)
				}
			}
			if first, second, ok := strings.Cut(a.Printed, " of "); ok {
				x, _ := strconv.ParseFloat(first, 64)
				y, _ := strconv.ParseFloat(second, 64)
				want := x - y
				if strings.HasPrefix(a.Unit, "%") {
					want *= 100
				}
				if math.Abs(want-*a.Paper) > 1e-9 {
					t.Errorf("%s, %s: %v, want %v", id, a.Claim, *a.Paper, want)
				}
			}
		}
	}
}

// measuredContext is a context of a file of docs/benchmarks: likeness to the whole KV's answer by configuration.
type measuredContext struct {
	set, row string
	likeness map[string]float64
}

func measuredContexts(t *testing.T, file string) (out []measuredContext) {
	t.Helper()
	f, err := os.Open("../docs/benchmarks/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		c := measuredContext{set: line[0], row: line[1], likeness: map[string]float64{}}
		for i, name := range lines[0][4:] {
			if v, err := strconv.ParseFloat(line[4+i], 64); err == nil {
				c.likeness[name] = v
			}
		}
		out = append(out, c)
	}
	return out
}

// interval is the 95 % bootstrap interval of a statistic of contexts, drawn by their rows, whose parts are not independent.
// The strata have as many rows each in every draw.
func interval(statistic func([]measuredContext) float64, strata ...[]measuredContext) (low, high float64) {
	var rows []map[string][]measuredContext
	var names [][]string
	for _, contexts := range strata {
		of := map[string][]measuredContext{}
		for _, c := range contexts {
			of[c.row] = append(of[c.row], c)
		}
		rows, names = append(rows, of), append(names, slices.Sorted(maps.Keys(of)))
	}
	rng, values := rand.New(rand.NewPCG(1, 1)), make([]float64, 10000)
	for i := range values {
		var drawn []measuredContext
		for k, of := range rows {
			for range of {
				drawn = append(drawn, of[names[k][rng.IntN(len(of))]]...)
			}
		}
		values[i] = statistic(drawn)
	}
	slices.Sort(values)
	return values[len(values)/40], values[len(values)-1-len(values)/40]
}

func lossOf(name string) func([]measuredContext) float64 {
	return func(contexts []measuredContext) float64 {
		var losses []float64
		for _, c := range contexts {
			losses = append(losses, 1-c.likeness[name])
		}
		slices.Sort(losses)
		return (losses[(len(losses)-1)/2] + losses[len(losses)/2]) / 2
	}
}

// bestShare is the part of the contexts, in %, for which a method loses least; those that several share count in parts.
func bestShare(method string) func([]measuredContext) float64 {
	return func(contexts []measuredContext) float64 {
		sum := 0.0
		for _, c := range contexts {
			most, equal := -1.0, 0.0
			for _, m := range []string{"kvzip 0.6", "knorm 0.6", "snapkv 0.6"} {
				switch v := c.likeness[m]; {
				case v > most:
					most, equal = v, 1
				case v == most:
					equal++
				}
			}
			if c.likeness[method+" 0.6"] == most {
				sum += 100 / equal
			}
		}
		return sum / float64(len(contexts))
	}
}

// bestKeep is the share of a context's KV whose likeness less itself is the largest, by whichever method: quality over the whole KV's, less
// time to first token over the whole KV's, which is loaded in proportion to its bytes. The whole KV is 1 less 1; of equal ones the larger.
func bestKeep(c measuredContext) float64 {
	best, most := 1.0, 0.0
	for name, likeness := range c.likeness {
		_, share, _ := strings.Cut(name, " ")
		keep, _ := strconv.ParseFloat(share, 64)
		if gain := likeness - keep; gain > most || gain == most && keep > best {
			best, most = keep, gain
		}
	}
	return best
}

// keepOf is the mean of contexts' best shares, and their standard deviation over it.
func keepOf(contexts []measuredContext) (mean, variation float64) {
	squares, n := 0.0, float64(len(contexts))
	for _, c := range contexts {
		mean += bestKeep(c) / n
	}
	for _, c := range contexts {
		squares += (bestKeep(c) - mean) * (bestKeep(c) - mean)
	}
	return mean, math.Sqrt(squares/(n-1)) / mean
}

// overSets is a statistic of what each data set's contexts give.
func overSets(of func(contexts []measuredContext) float64, all func(...float64) float64) func([]measuredContext) float64 {
	return func(contexts []measuredContext) float64 {
		var values []float64
		for _, set := range bySet(contexts) {
			values = append(values, of(set))
		}
		return all(values...)
	}
}

func bySet(contexts []measuredContext) (out [][]measuredContext) {
	sets := map[string][]measuredContext{}
	for _, c := range contexts {
		sets[c.set] = append(sets[c.set], c)
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		out = append(out, sets[name])
	}
	return out
}

// TestAccuracyOfContexts: what is said of EvicPress's Figures 3 to 5 is what the contexts give.
func TestAccuracyOfContexts(t *testing.T) {
	all, seen := measuredContexts(t, "evicpress-quality.csv"), 0
	checkIn := func(a *Accuracy, strata [][]measuredContext, statistic func([]measuredContext) float64, to float64) {
		seen++
		low, high := interval(statistic, strata...)
		contexts := slices.Concat(strata...)
		for i, v := range []float64{statistic(contexts), low, high} {
			got := []*float64{a.Ours, a.Low, a.High}[i]
			if got == nil || math.Abs(*got-v) > to*0.501 {
				t.Errorf("%s: value, low and high %d of %d contexts is %.4f, want what was entered: %v", a.Claim, i, len(contexts), v, a.Text())
			}
		}
		if a.N != len(contexts) {
			t.Errorf("%s: n = %d, want %d", a.Claim, a.N, len(contexts))
		}
	}
	check := func(a *Accuracy, contexts []measuredContext, statistic func([]measuredContext) float64, to float64) {
		checkIn(a, [][]measuredContext{contexts}, statistic, to)
	}
	for i := range accuracies()["evicpress-fig3"] {
		a := &accuracies()["evicpress-fig3"][i]
		_, name, _ := strings.Cut(a.Claim, "loss of quality, ")
		var of []measuredContext
		for _, c := range all {
			if _, ok := c.likeness["keydiff 0.9"]; ok && strings.EqualFold(strings.ReplaceAll(c.set, "_", ""), name) {
				of = append(of, c)
			}
		}
		check(a, of, lossOf("keydiff 0.9"), 0.001)
	}
	for i := range accuracies()["evicpress-fig4"] {
		a := &accuracies()["evicpress-fig4"][i]
		method, _, _ := strings.Cut(strings.TrimPrefix(a.Claim, "contexts for which "), " ")
		var of []measuredContext
		for _, c := range all {
			if _, ok := c.likeness["kvzip 0.6"]; ok {
				of = append(of, c)
			}
		}
		check(a, of, bestShare(method), 0.1)
	}
	sets := bySet(measuredContexts(t, "evicpress-keeps.csv"))
	variation := func(contexts []measuredContext) float64 { _, v := keepOf(contexts); return v }
	mean := func(contexts []measuredContext) float64 { m, _ := keepOf(contexts); return m }
	for i := range accuracies()["evicpress-fig5"] {
		a := &accuracies()["evicpress-fig5"][i]
		switch {
		case strings.HasPrefix(a.Claim, "least"):
			checkIn(a, sets, overSets(variation, func(v ...float64) float64 { return slices.Min(v) }), 0.001)
		case strings.HasPrefix(a.Claim, "greatest"):
			checkIn(a, sets, overSets(variation, func(v ...float64) float64 { return slices.Max(v) }), 0.001)
		default:
			two := slices.DeleteFunc(slices.Clone(sets), func(s []measuredContext) bool { return s[0].set != "multi_news" && s[0].set != "musique" })
			checkIn(a, two, overSets(mean, func(v ...float64) float64 { return v[0] - v[1] }), 0.001)
		}
	}
	if seen != 12 {
		t.Errorf("%d statements, want 12", seen)
	}
}

// TestVerdict: an interval that holds what the paper has is compatible with it, one on the other side is against it, and one that holds 0
// says nothing of an order.
func TestVerdict(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		asks                   string
		paper, ours, low, high *float64
		want                   string
	}{
		{"equal", p(-0.4), p(0.1), p(-0.4), p(2), Compatible},
		{"equal", p(-0.4), p(0.1), p(-0.3), p(2), Against},
		{"equal", p(0), p(-2), p(-3), p(-1), Against},
		{"above", nil, p(2), p(1), p(3), Compatible},
		{"above", nil, p(2), p(-1), p(3), Open},
		{"above", nil, p(-2), p(-3), p(-1), Against},
		{"below", nil, p(-2), p(-3), p(-1), Compatible},
		{"below", nil, p(-2), p(-3), p(1), Open},
		{"below", nil, p(2), p(1), p(3), Against},
		{"below", nil, p(2), nil, nil, Open},
		{"equal", p(0), nil, nil, nil, NotMeasured},
		{"apart", nil, p(-2), p(-3), p(-1), Compatible},
		{"apart", nil, p(2), p(1), p(3), Compatible},
		{"apart", nil, p(2), p(-1), p(3), Open},
	} {
		a := Accuracy{Asks: c.asks, Paper: c.paper, Ours: c.ours, Low: c.low, High: c.high}
		if got := a.Verdict(); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.asks, fmt.Sprint(c.low, c.high), got, c.want)
		}
	}
}

// TestAccuracyOnThePage: the page counts verdicts and has each statement.
func TestAccuracyOnThePage(t *testing.T) {
	r, err := Reproduce([]string{"sliminfer-tab1", "instinfer-fig11", "evicpress-fig3"})
	if err != nil {
		t.Fatal(err)
	}
	var html strings.Builder
	if err := r.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range r.Experiments {
		for i := range e.Accuracy {
			count[e.Accuracy[i].Verdict()]++
			if !strings.Contains(html.String(), e.Accuracy[i].Claim) {
				t.Errorf("the page does not have %q", e.Accuracy[i].Claim)
			}
		}
	}
	if want := fmt.Sprintf("accuracy %d are compatible with what small models gave here, %d are not, %d cannot be told", count[Compatible], count[Against], count[Open]); !strings.Contains(html.String(), want) || count[Against] == 0 || count[NotMeasured] != 0 {
		t.Errorf("the page does not say %q", want)
	}
}

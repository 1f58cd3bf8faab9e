package simulate

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
)

// Accuracy is what a paper says about accuracy beside what a small model gave here. Differences and intervals are as the page has
// them that Page names; intervals are 95 % of a paired bootstrap.
type Accuracy struct {
	Claim   string   `json:"claim"`
	Where   string   `json:"where"`             // in the paper
	Model   string   `json:"model"`             // the paper's
	Asks    string   `json:"asks"`              // equal: our interval holds Paper; above, below: it lies on that side of 0; apart: on either
	Unit    string   `json:"unit"`              // of Ours, Low and High
	Printed string   `json:"printed,omitempty"` // by the paper
	Table   string   `json:"table,omitempty"`   // of the papers' tables that has it
	Paper   *float64 `json:"paper,omitempty"`   // nil: the paper has an order, or words
	Ours    *float64 `json:"ours,omitempty"`    // nil: not measured, Reason says why
	Low     *float64 `json:"low,omitempty"`     // nil: the page has no interval of the difference
	High    *float64 `json:"high,omitempty"`
	N       int      `json:"n,omitempty"`
	On      string   `json:"on,omitempty"` // our model and setting

	published
}

// published is where a measured value stands, and what else there is to say.
type published struct {
	Page   string `json:"page,omitempty"` // below docs, with the command, its date and machine
	Quote  string `json:"quote,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// The verdicts.
const (
	Compatible  = "compatible"
	Against     = "against"
	Open        = "cannot be told"
	NotMeasured = "not measured"
)

// Verdict says whether what was measured is compatible with the paper.
func (a *Accuracy) Verdict() string {
	switch {
	case a.Ours == nil:
		return NotMeasured
	case a.Low == nil || a.High == nil:
		return Open
	case a.Asks == "equal" && *a.Low <= *a.Paper && *a.Paper <= *a.High,
		a.Asks == "above" && *a.Low > 0, a.Asks == "below" && *a.High < 0,
		a.Asks == "apart" && (*a.Low > 0 || *a.High < 0):
		return Compatible
	case a.Asks == "above" && *a.High >= 0, a.Asks == "below" && *a.Low <= 0, a.Asks == "apart":
		return Open
	}
	return Against
}

// Text is the measured value with its interval and number of samples.
func (a *Accuracy) Text() string {
	switch {
	case a.Ours == nil:
		return "–"
	case a.Low == nil:
		return fmt.Sprintf("%.4g %s, n = %d", *a.Ours, a.Unit, a.N)
	}
	return fmt.Sprintf("%.4g (%.4g … %.4g) %s, n = %d", *a.Ours, *a.Low, *a.High, a.Unit, a.N)
}

// Says is what the paper has.
func (a *Accuracy) Says() string {
	switch {
	case a.Printed != "" && a.Paper != nil && a.Printed != fmt.Sprint(*a.Paper):
		return fmt.Sprintf("%+.4g (%s)", *a.Paper, a.Printed)
	case a.Printed != "":
		return a.Printed
	case a.Paper != nil:
		return "as much, in words"
	}
	return "in words"
}

//go:embed data/accuracy.json
var accuracyText []byte

// accuracies are the statements by experiment.
var accuracies = sync.OnceValue(func() map[string][]Accuracy {
	var list []struct {
		ID string
		Accuracy
	}
	if err := json.Unmarshal(accuracyText, &list); err != nil {
		panic("simulate: data/accuracy.json: " + err.Error())
	}
	out := map[string][]Accuracy{}
	for _, a := range list {
		out[a.ID] = append(out[a.ID], a.Accuracy)
	}
	return out
})

// accuracyRuns are the papers' tables and figures of accuracy alone; those that have times too are registered with them.
func accuracyRuns(register registrar) {
	for id, title := range map[string]string{
		"hillinfer-fig11": "accuracy beside full",
		"instinfer-fig11": "accuracy over the compression ratio",
		"sliminfer-tab1":  "LongBench beside full and other methods",
		"sliminfer-tab3":  "how blocks are scored",
		"sliminfer-figA":  "needles",
		"sliminfer-figD":  "newest queries that choose",
		"sliminfer-fig7":  "layer from which is pruned",
		"evicpress-fig3":  "what compression costs by data set",
		"evicpress-fig4":  "contexts by their best method",
	} {
		register(&experiment{id: id, title: title + " (measured on small models, nothing is modelled)", run: func(*builder) error { return nil }})
	}
}

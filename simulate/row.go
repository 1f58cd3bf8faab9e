package simulate

// Kind says how a value was reached.
type Kind string

// The kinds.
const (
	ClosedForm  Kind = "closed_form"
	Calibrated  Kind = "calibrated"
	Predicted   Kind = "predicted"
	Sensitivity Kind = "sensitivity"
	OfMeasured  Kind = "measured" // in results.json alone
)

// Shared says of a row that the product's own policy, retrieval, kvmanager, offload and csdshim code ran for it, on one clock of
// events.
const Shared = "shared"

// Measured is the Source of a row that was measured; all others are modelled.
const Measured = "measured"

// Row is one value.
type Row struct {
	Series string         `json:"series"`
	X      map[string]any `json:"x"`
	Metric string         `json:"metric"`
	Unit   string         `json:"unit"`
	Value  float64        `json:"value"`
	Paper  *float64       `json:"paper"` // nil: no paper prints it
	Error  *float64       `json:"error"` // value/paper - 1; nil without a paper's value, or where that is 0
	Kind   Kind           `json:"kind"`
	Source string         `json:"source"` // modelled or measured
	Target string         `json:"target,omitempty"`
	Low    *float64       `json:"low,omitempty"` // of a sensitivity band
	High   *float64       `json:"high,omitempty"`
	Varied []string       `json:"varied,omitempty"` // the parameters that the band comes from
	Reason string         `json:"reason,omitempty"` // why a prediction misses; of a measured row, on what it was measured and where that is published
	Code   string         `json:"code,omitempty"`   // Shared, or empty: a formula of this package
}

// Result is what an experiment answers.
type Result struct {
	ID           string               `json:"id"`
	Rows         []Row                `json:"rows"`
	Accuracy     []Accuracy           `json:"accuracy,omitempty"` // what was measured of the paper's statements about accuracy
	CalibratedOn []string             `json:"calibrated_on"`
	Uses         []string             `json:"uses"` // packages of the product that ran for it; of rows that are Shared, all of them
	Parameters   map[string]Parameter `json:"parameters"`
}

// Parameter is one value of the hardware, the system or the workload that a result depends on.
type Parameter struct {
	Value  any      `json:"value"` // number or text
	Unit   string   `json:"unit"`  // B/s FLOP/s s B tokens count fraction text
	Source string   `json:"source"`
	Low    *float64 `json:"low,omitempty"`
	High   *float64 `json:"high,omitempty"`
	Note   string   `json:"note,omitempty"`
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"terrace/bench"
	"terrace/engine/tier"
	"terrace/internal/kernels"
	"terrace/internal/units"
	"terrace/model"
)

// benchCase is a policy on its tiers and a backend, with an engine of its own.
type benchCase struct {
	l     *loaded
	kv    kvFlags
	tiers []tier.Tier
	made  []string // folders to be removed
	text  []int
}

func (c *benchCase) close() {
	c.l.close()
	for _, dir := range c.made {
		os.RemoveAll(dir)
	}
}

func (c *benchCase) name() string {
	if len(c.kv.tiers) == 0 {
		return c.kv.policyName()
	}
	return c.kv.policyName() + " on " + strings.Join(c.kv.tiers, " ")
}

// title is the case's name, and its backend where that is not native.
func (c *benchCase) title() string {
	if b := c.l.engine.Options().Backend; b != "native" {
		return c.name() + ", " + b
	}
	return c.name()
}

// openBenchCases opens every case. On an error those opened are to be closed too. A bench may go deeper than the model was
// trained for: it is about time.
func (bc *benchCommand) openBenchCases(kvs []kvFlags) (cases []*benchCase, err error) {
	quiet := bc.quiet
	bc.quiet = true
	defer func() { bc.quiet = quiet }()
	text := ""
	if bc.text != "" {
		if text, err = bc.readText(bc.text); err != nil {
			return nil, err
		}
	}
	n := len(kvs) * len(bc.load.backends)
	for i := range n {
		load, kv := bc.load, kvs[i%len(kvs)]
		c := &benchCase{kv: kv}
		load.backend, load.texts = bc.load.backends[i/len(kvs)], bc.o.Batch
		if load.context == "" || load.context == "0" {
			load.context = contextFor(bc.o.Tokens())
		}
		if kv.tiers, c.tiers, err = ownFolders(kv.tiers, i, n); err != nil {
			return cases, err
		}
		if c.l, err = bc.openKVEngine(&load, &kv); err != nil {
			return cases, err
		}
		c.kv.own = kv.own
		cases = append(cases, c)
		for _, t := range c.tiers {
			if t.Kind == tier.SSD && n > 1 {
				c.made = append(c.made, t.Place)
			}
		}
		if text != "" {
			if c.text, err = c.l.tok.Encode(text, true, false); err != nil {
				return cases, err
			}
		}
	}
	return cases, nil
}

// contextFor is the --context of a bench of so many tokens.
func contextFor(tokens int) string { return fmt.Sprint(max(tokens, 64)) }

// ownFolders gives the SSD tiers of case i a folder of their own where there are several cases.
func ownFolders(specs []string, i, cases int) (own []string, tiers []tier.Tier, err error) {
	if tiers, err = tierList(specs); err != nil {
		return nil, nil, err
	}
	own = slices.Clone(specs)
	for j := range tiers {
		if t := &tiers[j]; t.Kind == tier.SSD && cases > 1 {
			t.Place = filepath.Join(t.Place, fmt.Sprintf("bench-%d", i+1))
			if _, err := os.Stat(t.Place); err == nil {
				return nil, nil, usageErrorf("--case: %s is there already: remove it if it is from a bench that was killed, or name another folder", t.Place)
			}
			own[j] = t.String()
		}
	}
	return own, tiers, nil
}

// benchRow is one row of bench -o json.
type benchRow struct {
	Test      string    `json:"test"`
	Model     string    `json:"model"`
	NPrompt   int       `json:"n_prompt"`
	NGen      int       `json:"n_gen"`
	Depth     int       `json:"depth"`
	Threads   int       `json:"threads"`
	Backend   string    `json:"backend"`
	DType     string    `json:"dtype,omitempty"` // on the device, where it was chosen
	Policy    string    `json:"policy"`
	Tiers     []string  `json:"tiers"`
	Batch     int       `json:"batch"`
	TPSMedian float64   `json:"tps_median"`
	TPSAll    []float64 `json:"tps_all"`
	Ratio     float64   `json:"ratio"` // median of the repeats' speeds over the first row's of the same test
	TTFTMS    float64   `json:"ttft_ms"`
	KV        benchKV   `json:"kv"`

	Device  *deviceJSON  `json:"device,omitempty"`
	Weights *weightsJSON `json:"weights,omitempty"` // generation on the native backend

	PeakRSSBytes int64  `json:"peak_rss_bytes"` // of the process, all cases so far
	CPU          string `json:"cpu"`
	Source       string `json:"source"`

	modelBytes int64 // of the model's files
}

// weightsJSON is the memory's limit of generation: what a step reads of weights, and how fast the same threads read that alone.
type weightsJSON struct {
	StepBytes int64   `json:"step_bytes,omitempty"`
	ReadRate  float64 `json:"read_bytes_per_second,omitempty"` // without computing, median; 0 where not all weights are in memory
	Share     float64 `json:"share,omitempty"`                 // of that rate, which steps reach; KV read beside the weights does not count

	*streamJSON // of --weights and --memory, of all cases so far
}

// columns are the rate at which steps read weights and its share of reading alone.
func (j *weightsJSON) columns() string {
	if j == nil || j.ReadRate == 0 {
		return "-\t-\t"
	}
	return fmt.Sprintf("%.1f\t%.0f\t", j.Share*j.ReadRate/1e9, 100*j.Share)
}

// deviceJSON is what the backend's device did in a repeat, on average; its bytes are among those of KV.
type deviceJSON struct {
	ComputeMS float64 `json:"compute_ms"`
	UpMS      float64 `json:"host_to_device_ms"`
	DownMS    float64 `json:"device_to_host_ms"`
}

// benchKV is what the tiers did in the repeats; bytes and reads are of all of them.
type benchKV struct {
	BytesPeak  map[string]int64 `json:"bytes_peak"` // since the case was opened
	BytesMoved map[string]int64 `json:"bytes_moved"`
	HitRate    *float64         `json:"hit_rate"`             // of the tokens that passes read; null without tiers
	Reads      int64            `json:"reads"`                // operations of the device
	BytesToken float64          `json:"read_bytes_per_token"` // from the lower tier, a token of output or prompt
	ReadRate   float64          `json:"read_bytes_per_s"`     // while something was being read
	ReadShare  float64          `json:"read_share"`           // of the time, something was being read
	StallShare float64          `json:"stall_share"`          // of the time, compute stood still for the lower tier
	Balance    *balanceJSON     `json:"balance,omitempty"`    // where a drive scores
	Pools      *poolsJSON       `json:"pools,omitempty"`      // where a policy's pools decide what is hot
	XCache     *xcacheJSON      `json:"xcache,omitempty"`     // where layers' rows lie below instead of keys and values
}

// row is the case's row; first is the one that ratios are to.
func (c *benchCase) row(r, first bench.Row) benchRow {
	o := c.l.engine.Options()
	row := benchRow{Test: r.Test, Model: c.l.name, NPrompt: r.P, NGen: r.N, Depth: r.Depth, Threads: o.Threads, Backend: o.Backend,
		Policy: c.kv.policyName(), Tiers: append([]string{}, c.kv.tiers...), Batch: r.Batch, TPSMedian: r.MedianTPS(), TPSAll: r.TPS, Ratio: r.MedianRatio(first), TTFTMS: ms(r.MeanTTFT()),
		KV: kvOf(r), PeakRSSBytes: peakRSSBytes(), CPU: kernels.Path(), Source: r.Source(), modelBytes: c.l.file.Weights().SizeBytes()}
	if o.DType != model.Float32 {
		row.DType = o.DType.String()
	}
	if len(r.ReadRate) > 0 {
		row.Weights = &weightsJSON{StepBytes: r.WeightBytes, ReadRate: r.MedianReadRate(), Share: r.ReadShare()}
	} else if u := weightsReport(c.l.engine); u != nil {
		row.Weights = &weightsJSON{streamJSON: u}
	}
	t := r.Tiers
	if n := time.Duration(len(r.TPS)); n > 0 && t.Compute > 0 {
		row.Device = &deviceJSON{ms(t.Compute / n), ms(t.Up / n), ms(t.Down / n)}
	}
	return row
}

// kvOf is what the tiers did in a row's repeats.
func kvOf(r bench.Row) benchKV {
	t, reads := r.Tiers, r.TierReads()
	return benchKV{BytesPeak: t.PeakBytes, BytesMoved: t.MovedBytes, HitRate: t.HitRate, Reads: t.Reads, BytesToken: reads.TokenBytes, ReadRate: reads.Rate,
		ReadShare: reads.BusyShare, StallShare: reads.StallShare, Balance: balanceReport(t.Balance), Pools: poolsReport(t.Pools), XCache: xcacheReport(t.XCache)}
}

// printBench prints rows as a table; columns of tiers only where there are some.
func (bc *benchCommand) printBench(rows []benchRow) error {
	w := tabwriter.NewWriter(bc.stdout, 2, 0, 2, ' ', tabwriter.AlignRight)
	tiered := slices.ContainsFunc(rows, func(r benchRow) bool { return len(r.Tiers) > 0 })
	limited := slices.ContainsFunc(rows, func(r benchRow) bool { return r.Weights != nil && r.Weights.ReadRate > 0 })
	fmt.Fprint(w, "model\ttest\tbackend\tpolicy\tthreads\tbatch\tt/s (median)\tratio\tttft ms\tpeak MiB\tcpu\t")
	if limited {
		fmt.Fprint(w, "weights GB/s\tof read %\t")
	}
	if tiered {
		fmt.Fprint(w, "host peak\thit\tread/token\treads/token\tread GB/s\tread %\tstall %\ttiers\t")
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%.1f\t%.3f\t%.1f\t%.0f\t%s\t", r.Model, r.Test, r.Backend, r.Policy, r.Threads, r.Batch, r.TPSMedian, r.Ratio, r.TTFTMS, float64(r.PeakRSSBytes)/(1<<20), r.CPU)
		if limited {
			fmt.Fprint(w, r.Weights.columns())
		}
		if tiered {
			hit := "-"
			if r.KV.HitRate != nil {
				hit = fmt.Sprintf("%.3f", *r.KV.HitRate)
			}
			tokens := len(r.TPSAll) * max(r.NPrompt, r.NGen*r.Batch)
			fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\t%.2f\t%.0f\t%.0f\t%s\t", units.FormatBytes(r.KV.BytesPeak["host"]), hit, units.FormatBytes(int64(r.KV.BytesToken)),
				float64(r.KV.Reads)/float64(max(tokens, 1)), r.KV.ReadRate/1e9, 100*r.KV.ReadShare, 100*r.KV.StallShare, strings.Join(r.Tiers, " "))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

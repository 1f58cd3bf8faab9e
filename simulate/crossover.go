package simulate

import (
	"fmt"
	"sort"

	"terrace/policy"
	"terrace/retrieval"
)

// mostTokens is up to where the crossover is looked for.
const mostTokens = 1 << 24

// driveRate is f_s of profile smartssd's rates, bytes of KV a second: int8 codes in DRAM are a quarter of half-precision keys and
// values, keys on flash a half.
func (h hill) driveRate(keys string) (float64, error) {
	switch keys {
	case "ddr":
		return 4 * h.p["csd_dram_bps"], nil
	case "nand":
		return min(4*h.p["csd_dram_bps"], 2*h.p["csd_bps"]), nil
	}
	return 0, fmt.Errorf("keys=%s: want ddr or nand", keys)
}

// weigh is what policy hillinfer's drive=auto compares for a layer of so many tokens; host memory has room for all low-bit keys.
func (h hill) weigh(b policy.Balance, tokens float64) retrieval.WeighUse {
	beta := b.Beta(policy.BetaOverlap)
	w := retrieval.Weigh(policy.Balanced{Balance: b, Found: -1, Share: beta / (1 + beta)}, tokens*h.batch*h.m.kvLayer(), 1, h.p["round_trip_s"])
	w.Room = retrieval.CodesAndKV
	return w
}

// crossover is the least number of tokens at which the drive scores; 0 = none up to mostTokens.
func (h hill) crossover(b policy.Balance) int {
	n := sort.Search(mostTokens, func(n int) bool { return n > 0 && !h.weigh(b, float64(n)).Host() })
	if n == mostTokens {
		return 0
	}
	return n
}

// hillCrossover adds where host and drive cross for each host's and drive's rate, and what a layer's scores take at some contexts.
func hillCrossover(b *builder) error {
	for _, fc := range b.axes.numbers("f_c") {
		for _, keys := range b.axes.texts("keys") {
			err := b.hillTry(func(model string, h hill) error {
				fs, err := h.driveRate(keys)
				if err != nil {
					return err
				}
				if !(fc > 0 && fs > 0 && h.p["B_c"] > 0 && h.p["B_s"] > 0) {
					return fmt.Errorf("f_c=%v f_s=%v B_c=%v B_s=%v: want more than 0", fc, fs, h.p["B_c"], h.p["B_s"])
				}
				split := policy.Balance{Alpha: h.p["alpha"], FC: fc, FS: fs, BC: h.p["B_c"], BS: h.p["B_s"]}
				x := func(more ...any) map[string]any {
					return X(append(more, "f_c", fc, "keys", keys, "model", model, "batch", h.batch)...)
				}
				if h.context == b.axes.numbers("context")[0] { // does not depend on it
					n := h.crossover(split)
					b.exact("drive=auto", "drive_from", "tokens", x(), float64(n))
					if n == 0 {
						b.rows[len(b.rows)-1].Reason = "never: the host scores all before the drive has scored its part"
					}
				}
				w := h.weigh(split, h.context)
				b.exact("host alone", "layer_s", "s", x("context", h.context), w.Alone)
				b.exact("host and drive", "layer_s", "s", x("context", h.context), w.Together)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

package retrieval

import (
	"terrace/csdshim"
	"terrace/internal/kvpage"
	"terrace/offload"
	"terrace/policy"
)

// BalanceUse is how a policy with a drive divides the tokens of a text between host and drive (HillInfer's adaptive
// pipeline, algorithms.md 1.7). Its throughputs are bytes of KV a second: the host's as infer profile measured them, the
// drive's by the profile that it mimics; without either as much is hot as fits, unless beta is fixed.
type BalanceUse struct {
	policy.Balanced
	Tokens     int // of the text that was divided last
	HotTokens  int // of them that are to be hot: the split, but at most Capacity
	Capacity   int // of them that fit in host memory
	HostTokens int // of them that the host scores now

	Timed   bool      // f_s is by the drive's own timing of its answers, not by its profile
	Weighed *WeighUse // why host or drive scores what is cold; nil = that was not to be decided
}

// driveBalance is what host and drive do in a second, in bytes of KV as stored: K and V counted, although scoring reads keys
// only. Zero where the host was not measured or the drive is not limited.
func driveBalance(host offload.HostRates, threads int, id csdshim.Identity, codes csdshim.Codes, shape offload.Shape) policy.Balance {
	if codes == csdshim.CodesNone {
		return policy.Balance{}
	}
	elem, bits := kvpage.I4, codes.Bits() // the host's rate of product codes is not measured: that of 4-bit keys stands for it
	if codes != csdshim.CodesProduct {
		elem = codes.Elem()
	}
	heads, page := shape.KVHeads(0), shape.PageOf(0) // a drive takes layers of one shape
	numbers := float64(heads * page.KeyDim)          // of a token's keys in a layer
	perToken := float64(heads) * float64(page.KeyDim*page.K.Bits()/8+page.VRowBytes())
	b := policy.Balance{BC: host.Copy, BS: limited(id.LinkBytesPerS, id.NANDBytesPerS)}
	if host.Threads > 0 { // as if threads scaled; f16 keys and values are 4 bytes a number of the key
		b.FC = host.ScanRate(elem, heads, page.KeyDim) / 4 / numbers * perToken * float64(threads) / float64(host.Threads)
	}
	scan := id.ScanBytesPerS / (numbers * float64(bits) / 8)
	if id.Keys == csdshim.KeysNAND.String() {
		scan = limited(scan, id.NANDBytesPerS/(numbers*float64(page.K.Bits())/8))
	}
	b.FS = scan * perToken
	return b
}

// limited is the lower of two rates, of which 0 is none.
func limited(a, b float64) float64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// rates are what host and drive do in a second; zero where that is not known. timed says that f_s is by the drive's own timing,
// which counts on the wall's clock once there is enough of it.
func (h *driveScoring) rates() (b policy.Balance, timed bool) {
	f := h.c.t.f
	drive, ok := f.o.Store.(interface{ Identity() csdshim.Identity })
	if !ok {
		return b, false
	}
	id := drive.Identity()
	b = driveBalance(f.o.Host, f.o.Threads, id, h.drive.Scores(), f.o.Record)
	if rate := f.accounts.timed.rate(); rate > 0 && id.Paced() && b.FS > 0 {
		b.FS, timed = rate, true
	}
	return b, timed
}

// setBalance tells the policy what host and drive do in a second.
func (h *driveScoring) setBalance() {
	if h != nil {
		b, _ := h.rates()
		h.c.t.set.Placer.SetBalance(b)
	}
}

// rebalance has the token cache follow the split of n tokens, chunk by chunk, and notes it for reports.
func (c *cached) rebalance(n int) {
	pl, capacity := c.t.set.Placer, c.budget.hotCapacity(n)
	b, timed := c.drive.rates()
	pl.SetBalance(b)
	u := &BalanceUse{Balanced: pl.Balanced(), Tokens: n, HotTokens: pl.HotTokens(n, capacity), Capacity: capacity, HostTokens: c.drive.held(), Timed: timed, Weighed: c.weighing.use}
	if slots := c.budget.slots(u.HotTokens); slots < c.budget.limit-limitStep || slots > c.budget.limit+limitStep {
		c.budget.setLimit(slots)
	}
	c.t.f.accounts.balance = u
}

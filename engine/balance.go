package engine

import (
	"terrace/csdshim"
	"terrace/offload"
	"terrace/policy"
)

// BalanceUse is how a policy with a drive divides the tokens of a session between host and drive (HillInfer's adaptive
// pipeline, algorithms.md 1.7). Its throughputs are bytes of KV a second: the host's as infer profile measured them, the
// drive's by the profile that it mimics; without either as much is hot as fits, unless beta is fixed.
type BalanceUse struct {
	policy.Balanced
	Tokens     int // of the session that was divided last
	HotTokens  int // of them that are to be hot: the split, but at most Capacity
	Capacity   int // of them that fit in host memory
	HostTokens int // of them that the host scores now
}

// driveBalance is what host and drive do in a second, in bytes of KV as stored: K and V counted, although scoring reads keys
// only. Zero where the host was not measured or the drive is not limited.
func driveBalance(host offload.HostRates, threads int, id csdshim.Identity, codes csdshim.Codes, shape offload.Shape) policy.Balance {
	if codes == csdshim.CodesNone {
		return policy.Balance{}
	}
	elem := codes.Elem()
	page, numbers := shape.Page, float64(shape.KVHeads*shape.Page.KeyDim) // of a token's keys in a layer
	perToken := float64(shape.KVHeads) * float64(page.KeyDim*page.K.Bits()/8+page.VRowBytes())
	b := policy.Balance{BC: host.Copy, BS: limited(id.LinkBytesPerS, id.NANDBytesPerS)}
	if host.Threads > 0 { // as if threads scaled; f16 keys and values are 4 bytes a number of the key
		b.FC = host.Scan[elem.String()] / 4 / numbers * perToken * float64(threads) / float64(host.Threads)
	}
	scan := id.ScanBytesPerS / (numbers * float64(elem.Bits()) / 8)
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

// setBalance tells the policy what host and drive do in a second.
func (p *placement) setBalance() {
	drive, ok := p.s.e.tiers.store.(interface{ Identity() csdshim.Identity })
	if p.hie == nil || !ok {
		return
	}
	e := p.s.e
	p.run.set.Placer.SetBalance(driveBalance(e.o.Host, e.o.Threads, drive.Identity(), p.hie.drive.Scores(), e.shape()))
}

// found is the share of what the pool was asked for since the last call that it had; -1 = nothing was asked.
func (p *placement) found() float64 {
	now := p.pool.Stats()
	picked, missed := now.Picked-p.counted.Picked, now.Missed-p.counted.Missed
	p.counted = now
	if picked == 0 {
		return -1
	}
	return 1 - float64(missed)/float64(picked)
}

// balanced has the pool follow the split of n tokens, chunk by chunk, and notes it for reports.
func (p *placement) balanced(n int) {
	capacity := p.hotCapacity(n)
	u := &BalanceUse{Balanced: p.run.set.Placer.Balanced(), Tokens: n, HotTokens: p.run.set.Placer.HotTokens(n, capacity), Capacity: capacity, HostTokens: p.hie.hot.held}
	if slots := (u.HotTokens + p.pool.GranuleTokens() - 1) / p.pool.GranuleTokens(); slots < p.limit-poolStep || slots > p.limit+poolStep {
		p.setLimit(slots)
	}
	p.s.e.balance = u
}

// poolStep is by how many slots the split has to move before the pool does: what it gives up has to be read again.
const poolStep = 64

// setLimit sets how many slots a lane of the pool may have.
func (p *placement) setLimit(slots int) {
	p.limit = slots
	p.pool.SetLimit(slots)
}

package policy

import "math"

// Balance holds what HillInfer's adaptive pipeline (APP, algorithms.md 1.7) splits the KV cache by: the host and the drive
// should finish scoring and delivering their share at the same time. f counts bytes of K and V although scoring reads K
// only: f is twice the rate at which keys are scanned.
type Balance struct {
	Alpha float64 // part of the tokens that is delivered
	FC    float64 // f_c: bytes of KV the host scores a second
	FS    float64 // f_s: bytes of KV the drive scores a second
	BC    float64 // B_c: bytes a second from host memory to where attention runs
	BS    float64 // B_s: bytes a second from the drive
}

// BetaMode is the formula that hot over cold bytes comes from.
type BetaMode int

const (
	// BetaEq4 balances M_c/f_c + αM_c/B_c = M_s/f_s + αM_s/B_s (full text, equations 2 to 4).
	BetaEq4 BetaMode = iota
	// BetaStoreForward balances the same with cold tokens crossing B_s and then B_c (section 5.4's optimum).
	BetaStoreForward
	// BetaRatio is f_c/f_s, the limit without delivery (the shorter paper's equation 1).
	BetaRatio
	// BetaFixed is given by the user.
	BetaFixed
	// BetaOverlap balances the longer of scoring and delivery, max(M_c/f_c, αM_c/B_c) = max(M_s/f_s, αM_s/B_s): the pipeline as it is built
	// scores a layer while the one before is delivered (ours, not the paper's).
	BetaOverlap
)

func (m BetaMode) String() string {
	return [...]string{"eq4", "store_forward", "ratio", "fixed", "overlap"}[m]
}

func (b Balance) known() bool { return b.FC > 0 && b.FS > 0 && b.BC > 0 && b.BS > 0 }

// Beta is hot over cold bytes by a mode; BetaFixed has none here and gives NaN.
func (b Balance) Beta(m BetaMode) float64 {
	switch m {
	case BetaEq4:
		return b.BC * b.FC * (b.BS + b.Alpha*b.FS) / (b.BS * b.FS * (b.BC + b.Alpha*b.FC))
	case BetaStoreForward:
		return b.FC * (b.BS*b.BC + b.Alpha*b.BC*b.FS + b.Alpha*b.BS*b.FS) / (b.BS * b.FS * (b.BC + b.Alpha*b.FC))
	case BetaRatio:
		return b.FC / b.FS
	case BetaOverlap:
		return max(1/b.FS, b.Alpha/b.BS) / max(1/b.FC, b.Alpha/b.BC)
	}
	return math.NaN()
}

// Times are the seconds that host and drive take for hot and cold bytes, by a mode's own model.
func (b Balance) Times(m BetaMode, hotBytes, coldBytes float64) (host, drive float64) {
	host, drive = hotBytes/b.FC, coldBytes/b.FS
	if m == BetaEq4 || m == BetaStoreForward {
		host += b.Alpha * hotBytes / b.BC
		drive += b.Alpha * coldBytes / b.BS
	}
	switch m {
	case BetaStoreForward:
		drive += b.Alpha * coldBytes / b.BC
	case BetaOverlap:
		host, drive = max(host, b.Alpha*hotBytes/b.BC), max(drive, b.Alpha*coldBytes/b.BS)
	}
	return host, drive
}

// skewedShare is the part of the bytes that should be hot when a share h of the delivered tokens is found hot, whatever the
// pools' sizes: a mode's balance with hαM/B_c instead of αM_c/B_c and (1-h)αM instead of αM_s, solved for M_c/M and kept within
// 0 and 1. BetaFixed has none and gives NaN.
func (b Balance) skewedShare(m BetaMode, h float64) float64 {
	host, drive := b.skewedTimes(m, h, 1)
	switch m {
	case BetaFixed:
		return math.NaN()
	case BetaOverlap:
		switch scored := 1 / (b.FC + b.FS); { // both, of their parts
		case max(host, drive) <= scored:
			return b.FC * scored
		case drive > host:
			return min(b.FC*drive, 1)
		default:
			return max(1-b.FS*host, 0)
		}
	}
	share := (1/b.FS + drive - host) / (1/b.FC + 1/b.FS)
	return min(max(share, 0), 1)
}

// skewedTimes are the seconds of delivery of M bytes' selection, of which a share h is hot.
func (b Balance) skewedTimes(m BetaMode, h, totalBytes float64) (host, drive float64) {
	if m == BetaRatio {
		return 0, 0
	}
	host, drive = h*b.Alpha*totalBytes/b.BC, (1-h)*b.Alpha*totalBytes/b.BS
	if m == BetaStoreForward {
		drive += (1 - h) * b.Alpha * totalBytes / b.BC
	}
	return host, drive
}

// Balanced is a split of the KV cache and what it was computed from.
type Balanced struct {
	Balance // zero where no throughputs were given
	Mode    BetaMode
	Found   float64 // share of the selection that is found hot, by which the split is corrected; -1 = it is not
	Share   float64 // of all tokens that should be hot, the capacity aside
}

// Known says that there are throughputs; without them everything should be hot (but for BetaFixed).
func (b Balanced) Known() bool { return b.Balance.known() }

// Times are the seconds that host and drive take for a number of bytes so split, by the mode's own model. They are equal
// where the mode has one and the correction did not leave 0 to 1.
func (b Balanced) Times(totalBytes float64) (host, drive float64) {
	hot := b.Share * totalBytes
	if b.Found < 0 {
		return b.Balance.Times(b.Mode, hot, totalBytes-hot)
	}
	host, drive = b.skewedTimes(b.Mode, b.Found, totalBytes)
	if b.Mode == BetaOverlap {
		return max(host, hot/b.FC), max(drive, (totalBytes-hot)/b.FS)
	}
	return host + hot/b.FC, drive + (totalBytes-hot)/b.FS
}

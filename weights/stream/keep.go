package stream

import "math"

// keeping is the worth of having an expert in memory: how often it was chosen, each token counting half as much halfLife tokens later
// (LRFU: recency and frequency in one number; Lee et al. 2001). A layer's tokens are its clock, so that layers compare.
type keeping struct {
	worth float64
	at    int64 // the layer's clock when worth was right
}

// halfLife is in tokens. On the choices of TestBelady hits rise up to 48 and hardly from there on; shorter follows a change of subject
// sooner.
const halfLife = 48

// fading is what a worth is multiplied with after so many tokens.
func fading(tokens int64) float64 { return math.Exp2(-float64(tokens) / halfLife) }

// chosen counts that share of n tokens, the newest, which chose the expert; the layer's clock is now behind them.
func (k *keeping) chosen(share float64, n, now int64) {
	k.worth = k.now(now) + share*(1-fading(n))/(1-fading(1))
	k.at = now
}

// now is the worth at a time.
func (k *keeping) now(clock int64) float64 { return k.worth * fading(clock-k.at) }

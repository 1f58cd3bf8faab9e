package policy

import (
	"fmt"
	"math"
)

// hillinfer reads the top alpha of the tokens by a cheap score of every key, wherever the keys lie, and decides where they
// should lie (HillInfer, algorithms.md 1): hot tokens in fast memory, cold ones on storage, moved by how often they were
// needed. Four parts, each in a file of its own: scores in low precision (cec.go), merging of streamed scores (merger.go),
// hot and cold pools (pools.go), the balance between host and drive (balance.go).
//
// A token's score is Σ over heads of q·k, one ranking for all heads of a layer. It is a sum of integers for int8 and int4,
// so that it does not depend on where or in which order it was computed; ties go to the earlier position. Selection is
// therefore independent of placement. The newest token is read beside the selection.
type hillinfer struct {
	base
	alphaRule
	hotSplit
	driveUse
	cec       cec
	heads     headRule
	query     QueryKind
	guessFrom int
	keyDim    int
	pools     pools
	whole     bool // tokens are hot or cold in all layers together
	rankings  int  // selections made in this step: one a layer, or one a KV head

	rankScratch
}

// rankScratch is what a ranking works in.
type rankScratch struct {
	scores []float32
	merged []float32
	pick   picker
}

// alphaRule says how many tokens are read.
type alphaRule struct {
	alpha  float64
	recent bool // half of them are the newest
	dense  int  // first layers that read everything
}

// hotSplit divides the tokens between the host and the drive.
type hotSplit struct {
	balance Balance
	mode    BetaMode
	fixed   float64
	skew    bool
	hotPart float64 // share of the selection found hot, moving average over 32 steps
}

// driveUse says what a drive does.
type driveUse struct {
	blockLen int
	alone    bool // no drive scores
	weighs   bool // the drive scores where that pays
	serial   bool // the drive's scores come as one, and the host waits for them before it scores
}

// headRule says how the heads of a layer decide.
type headRule int

const (
	headSum     headRule = iota // one ranking a layer: the sum over all heads
	headKV                      // one ranking a KV head: the sum over its heads
	headMax                     // one ranking a layer: the largest product over the heads
	headSoftmax                 // one ranking a layer: the sum of softmax weights, as H2O's column sums
)

func init() {
	register(Info{
		Name:    "hillinfer",
		Summary: "scores every key in low precision where it lies, reads the best, keeps what is needed often in fast memory",
		Paper:   "HillInfer: Efficient Long-Context LLM Inference on the Edge with Hierarchical KV Eviction using SmartSSD, arXiv 2602.18750",
		Phase:   PhaseTiers,
		Budget:  "alpha",
		Params: []Param{
			{Name: "alpha", Default: "0.2", Doc: "part of the tokens that is read; 1 reads all"},
			{Name: "score", Default: "int8", Doc: "precision of the scores: int8, int4, fp16, or product (two numbers a 4-bit product code: half of what int4 scans)"},
			{Name: "scale", Default: "auto", Doc: "scales of low-bit keys: head, channel, or auto (head for int8, channel for int4)"},
			{Name: "heads", Default: "sum", Doc: "one ranking from all heads (sum, max, softmax) or one a KV head (kv_head)"},
			{Name: "query", Default: "guess", Doc: "score layer i+1 with its guessed query (guess), its own (exact) or that of the step before (prev_step)"},
			{Name: "guess_from", Default: "3", Doc: "where query=guess: so many of the first layers are scored with their own query, because what they add to the hidden state is too much for a guess"},
			{Name: "recent_in_selection", Default: "false", Doc: "force the newest alpha/2 of the tokens into the selection, as H2O does"},
			{Name: "dense_layers", Default: "0", Doc: "first layers that read everything"},
			{Name: "pools", Default: "layer", Doc: "what is hot: layer (our own: each layer the tokens whose score was lately nearest to the selection) or paper (the paper's BKP: whole tokens over all layers, by hit rate); token is another name of paper"},
			{Name: "exchange", Default: "true", Doc: "hot and cold tokens change places by how often they are needed; false: hot are the newest (what BKP brings)"},
			{Name: "drive", Default: "auto", Doc: "true: a drive that can scores the cold tokens; false: the host scores all (what the drive's scoring brings); auto: the drive, but the host where it is measured to be sooner done alone and has room for all low-bit keys"},
			{Name: "hie", Default: "true", Doc: "the drive's scores stream in while the host scores its own; false: they come as one, and the host scores after them (what the streamed evaluation brings)"},
			{Name: "beta_mode", Default: "overlap", Doc: "hot over cold bytes: overlap (our own: the longer of scoring and delivery, which run at the same time), the paper's eq4, store_forward or ratio, or fixed (with beta)"},
			{Name: "beta", Default: "1", Doc: "hot over cold bytes where beta_mode=fixed"},
			{Name: "skew", Default: "false", Doc: "correct the balance by the share of the selection that was found hot"},
			{Name: "block", Aliases: []string{"n"}, Default: "256", Doc: "tokens of a streamed score block (4 bytes a token)"},
		},
	}, newHillinfer)
}

func newHillinfer(a *args) Policy {
	p := &hillinfer{
		base: a.base(), heads: headRule(a.choice("heads", "sum", "kv_head", "max", "softmax")), query: a.query(),
		alphaRule: alphaRule{alpha: a.float("alpha", 1e-6, 1), recent: a.bool("recent_in_selection"), dense: a.int("dense_layers", 0, maxTokens)},
		hotSplit:  hotSplit{mode: BetaMode(a.choice("beta_mode", "eq4", "store_forward", "ratio", "fixed", "overlap")), fixed: a.float("beta", 0, 1e9), skew: a.bool("skew"), hotPart: -1},
		driveUse:  driveUse{blockLen: a.int("block", 16, 65536)},
	}
	p.cec.kind = []SketchKind{SketchInt8, SketchInt4, SketchHalf, SketchProduct}[a.choice("score", "int8", "int4", "fp16", "product")]
	p.cec.scale = ScaleHead
	if from := a.int("guess_from", 0, maxTokens); p.query == QueryGuess {
		p.guessFrom = from
	}
	if s := a.choice("scale", "auto", "head", "channel"); s == 2 || s == 0 && p.cec.kind == SketchInt4 {
		p.cec.scale = ScaleChannel
	}
	p.pools.alpha = p.alpha
	p.whole = a.choice("pools", "layer", "token", "paper") > 0
	p.pools.still = !a.bool("exchange")
	drive := a.choice("drive", "auto", "true", "false")
	p.weighs, p.alone, p.serial = drive == 0, drive == 2, !a.bool("hie")
	return p
}

// Needs asks for a low-bit copy of the keys and the query of [hillinfer].query.
func (p *hillinfer) Needs() Needs {
	if p.alpha >= 1 {
		return Needs{} // everything is read: nothing is scored
	}
	return Needs{Query: p.query, QueryFrom: p.guessFrom, Sketch: p.cec.sketch(p.keyDim), TokenGranularity: true, SharedAcrossHeads: p.heads != headKV, HostScores: p.alone}
}

// Most implements [Reader].
func (p *hillinfer) Most(l *Layer) (tokens, run int) {
	if l.Index < p.dense {
		return l.N, 1
	}
	return min(portion(p.alpha, l.N)+1, l.N), 1
}

// Bind remembers the length of a key and checks that one ranking can serve the layer.
func (p *hillinfer) Bind(m Model) error {
	if p.cec.kind == SketchProduct {
		kv, err := m.one(p.Name())
		if err != nil {
			return err
		}
		if p.keyDim = kv.KeyDim; kv.KeyDim%4 != 0 {
			return fmt.Errorf("policy: hillinfer: score=product of keys of %d numbers: want a multiple of 4: %w", kv.KeyDim, ErrModel)
		}
	}
	for i := range m.Layers {
		if kv := m.Layers[i].KV; m.Acts(i) && kv.Heads*kv.KeyDim > 1<<16 {
			return fmt.Errorf("policy: hillinfer: keys of %d×%d: an integer sum would not fit 32 bits: %w", kv.Heads, kv.KeyDim, ErrModel)
		}
	}
	return nil
}

// BlockLen is the number of tokens of a streamed score block.
func (p *hillinfer) BlockLen() int {
	if p.serial {
		return maxScoreBlock
	}
	return p.blockLen
}

// Weighs says that the drive is to score only where that ends sooner than the host alone.
func (p *hillinfer) Weighs() bool { return p.weighs }

// maxScoreBlock is the most tokens of a score block, whose positions are 16 bits above its first.
const maxScoreBlock = 1 << 16

// Serial says that the host scores its tokens after the drive has, not meanwhile.
func (p *hillinfer) Serial() bool { return p.serial }

// Question fills the quantised query that host and drive score with; ok is false where the head rule needs more than one
// score a token, which only the host can do.
func (p *hillinfer) Question(l *Layer, q *TokenQuery) (ok bool) {
	if p.heads != headSum {
		return false
	}
	p.cec.question(l, 0, l.KVHeads, q)
	return true
}

// Select scores on this side alone.
func (p *hillinfer) Select(l *Layer, read *Selection) {
	if !p.begin(l, read) {
		return
	}
	switch p.heads {
	case headSum:
		n := l.Tokens(0)
		p.scores = sized(p.scores, n)
		p.cec.sum(l, 0, l.KVHeads, p.scores)
		p.chooseAll(l, p.scores, read)
	case headKV:
		for g := range read.Heads {
			p.scores = sized(p.scores, l.Tokens(g))
			p.cec.sum(l, g, g+1, p.scores)
			read.Heads[g] = p.best(read.Heads[g], l, g, p.scores)
			p.pools.vote(l.Pos[g], read.Heads[g])
			p.rankings++
		}
	default:
		p.chooseAll(l, p.perHead(l), read)
	}
}

// Choose decides from scores of every cached token that came from elsewhere: [tokens], in cache order.
func (p *hillinfer) Choose(l *Layer, scores []float32, read *Selection) {
	if p.begin(l, read) {
		p.chooseAll(l, scores, read)
	}
}

// Wanted is the part of Select that needs no scores.
func (p *hillinfer) Wanted(l *Layer) (k, below int, all bool) {
	if l.Index < p.dense || p.alpha >= 1 {
		return 0, 0, true
	}
	n, k, recent := p.ranked(l, 0, l.Tokens(0))
	return k - recent, n - recent, false
}

// Score scores as Select does.
func (p *hillinfer) Score(l *Layer, q *TokenQuery, dst []float32) {
	p.cec.score(l.Scores, q, 0, l.KVHeads, l.KeyDim, dst)
}

// Accept takes a ranking that was made elsewhere.
func (p *hillinfer) Accept(l *Layer, best []int32, read *Selection) {
	read.Reset(l.KVHeads)
	n, _, recent := p.ranked(l, 0, l.Tokens(0))
	read.Heads[0] = p.withRecent(append(read.Heads[0], best...), n, recent, l.Tokens(0))
	p.share(l, read)
}

// begin resets the picks; false means that everything is read.
func (r *alphaRule) begin(l *Layer, read *Selection) bool {
	read.Reset(l.KVHeads)
	if l.Index < r.dense || r.alpha >= 1 {
		read.All = true
	}
	return !read.All
}

// chooseAll gives every KV head the same tokens.
func (p *hillinfer) chooseAll(l *Layer, scores []float32, read *Selection) {
	read.Heads[0] = p.best(read.Heads[0], l, 0, scores)
	p.share(l, read)
}

// share gives every KV head what the first has.
func (p *hillinfer) share(l *Layer, read *Selection) {
	for g := 1; g < l.KVHeads; g++ {
		read.Heads[g] = append(read.Heads[g], read.Heads[0]...)
	}
	p.pools.vote(l.Pos[0], read.Heads[0])
	p.rankings++
}

// best appends the top ⌈alpha·n⌉ of the n tokens before the newest, and the newest where it is cached already.
func (p *hillinfer) best(dst []int32, l *Layer, g int, scores []float32) []int32 {
	n, k, recent := p.ranked(l, g, len(scores))
	dst = p.pick.best(dst, scores[:n-recent], k-recent, 0)
	return p.withRecent(dst, n, recent, len(scores))
}

// ranked is the number of tokens before the newest, how many of them are read, and how many of those are the last ones
// whatever their scores.
func (r *alphaRule) ranked(l *Layer, g, tokens int) (n, k, recent int) {
	n = tokens
	if n > 0 && int(l.Pos[g][n-1]) == l.N-1 {
		n--
	}
	k = portion(r.alpha, n)
	if r.recent {
		recent = k / 2
	}
	return n, k, recent
}

// withRecent appends what is read whatever its score: the recent of the n tokens, and the newest.
func (r *alphaRule) withRecent(dst []int32, n, recent, tokens int) []int32 {
	return span(dst, n-recent, tokens)
}

// portion is ⌈alpha·n⌉ with a tolerance for alpha's binary fraction.
func portion(alpha float64, n int) int {
	return min(int(math.Ceil(alpha*float64(n)-1e-9)), n)
}

// perHead merges per-head products by maximum, or by softmax and sum: over the ranked tokens, because the newest one is not
// cached yet where a layer is chosen ahead.
func (p *hillinfer) perHead(l *Layer) []float32 {
	tokens := l.Tokens(0)
	n, _, _ := p.ranked(l, 0, tokens)
	p.scores, p.merged = sized(p.scores, tokens), sized(p.merged, tokens)
	for h := range l.Heads {
		p.cec.head(l, h, p.scores)
		if p.heads == headSoftmax {
			l.weigh(p.scores[:n], l.scale(), h)
		}
		for i, s := range p.scores {
			switch {
			case h == 0:
				p.merged[i] = s
			case p.heads == headMax:
				p.merged[i] = max(p.merged[i], s)
			default:
				p.merged[i] += s
			}
		}
	}
	return p.merged
}

// SetBalance gives the throughputs that beta is computed from.
func (p *hillinfer) SetBalance(b Balance) { b.Alpha = p.alpha; p.balance = b }

// hotShare is the part of all tokens that should be hot.
func (h *hotSplit) hotShare() float64 { return h.Balanced().Share }

// Balanced is the split by what is known now.
func (h *hotSplit) Balanced() Balanced {
	b := Balanced{Balance: h.balance, Mode: h.mode, Found: -1}
	switch {
	case h.mode == BetaFixed:
		b.Share = h.fixed / (1 + h.fixed)
	case !h.balance.known():
		b.Share = 1 // nothing measured: whatever fits
	case (h.skew || h.mode == BetaOverlap) && h.hotPart >= 0:
		b.Found, b.Share = h.hotPart, h.balance.skewedShare(h.mode, h.hotPart)
	default:
		beta := h.balance.Beta(h.mode)
		b.Share = beta / (1 + beta)
	}
	return b
}

// PlacePrompt fills the hot pool with the newest tokens.
func (p *hillinfer) PlacePrompt(n, hotCapacity int) int {
	hot := p.HotTokens(n, hotCapacity)
	p.pools.start(n, hot)
	return hot
}

// HotTokens follows beta.
func (p *hillinfer) HotTokens(n, hotCapacity int) int {
	return min(int(math.Round(float64(n)*p.hotShare())), hotCapacity, n)
}

// EndStep counts the step's selection and moves tokens between the pools.
func (p *hillinfer) EndStep(n, hotCapacity int, found float64, m *Moves) {
	if own := p.pools.count(p.rankings); found < 0 {
		found = own
	}
	if found >= 0 {
		if p.hotPart < 0 {
			p.hotPart = found
		}
		p.hotPart += (found - p.hotPart) / 32
	}
	p.rankings = 0
	m.Promote, m.Demote = m.Promote[:0], m.Demote[:0]
	if !p.Decides() {
		return
	}
	p.pools.move(n, p.HotTokens(n, hotCapacity), m)
}

// Decides says whether the pools alone say what is hot: by hit rate, or the newest.
func (p *hillinfer) Decides() bool { return p.whole || p.pools.still }

// WholeTokens is the paper's placement: a token moves over all layers.
func (p *hillinfer) WholeTokens() bool { return p.whole }

// Hot reports whether a token is in the hot pool; one not seen yet is.
func (p *hillinfer) Hot(position int) bool {
	return position >= len(p.pools.hot) || p.pools.hot[position]
}

package policy

import "terrace/internal/cacheshape"

// Policy is the core of every method: a name and parameters that parse back. What it can do is found by type assertion
// to the capabilities below.
type Policy interface {
	// Name is the registered name.
	Name() string
	// String is the name with every parameter that was given, in a form that [Parse] reads back to an equal policy.
	String() string
	// Needs says what the engine must observe for it; constant over the life of the instance.
	Needs() Needs
}

// Model is the part of a model's configuration that policies may look at.
type Model struct {
	Name       string // as the user knows it, for methods with a table of known models; may be empty
	Layers     cacheshape.Model
	Hidden     int
	KVBytes    int                 // K and V of one token over the layers that policies act on ([Model.Acts]) and their KV heads, in the cache's element types
	Context    int                 // longest context of the model in tokens, 0 = unknown
	Interlaced bool                // the numbers of a head that rotate together are neighbours, not half a head apart
	Index      *Index              // the trained indexer of layers that have one; nil = none has
	Filters    map[string]*Filters // by the file's name, as policies write it ([Needs].Filters)
	Observed   []Observed          // that some policy has asked for ([Needs].OfModel)
}

// Binder is a policy that has to know the model before it can work; Bind is called once, before any observation.
type Binder interface {
	Bind(m Model) error
}

// AllRows asks for every row (query) instead of the newest few.
const AllRows = -1

// Needs is what a policy has to see. The engine computes and keeps only what is asked for here.
type Needs struct {
	// PromptSums: for [PromptKeeper], [PromptObserver] and the start of [StepDropper], softmax weights summed per head and key
	// over the newest PromptSums queries of the prompt (AllRows: over all); 0 = none.
	PromptSums int
	// PromptRows: the weights of PromptSums (not AllRows) row by row too, in Layer.PromptRows.
	PromptRows bool
	// StepSums: softmax weights of each decode step's query, summed over the newest StepSums queries; 0 = none.
	// With 1 the step's own weights are meant, which attention has computed anyway.
	StepSums int
	// Queries after RoPE of the newest tokens, this many rows (AllRows: of the whole prompt or chunk); 0 = none.
	Queries int
	// Weights: for a [Masker], the softmax weights of the chunk's newest queries, row by row; 0 = none.
	Weights int
	// Keys and Values: Layer.KV answers for keys, for values.
	Keys, Values bool
	// OwnChannels: single channels of keys mean something, so they must be the model's own and not rotated ones.
	OwnChannels bool
	// Query says which query a [Selector] is asked with, from layer QueryFrom on; those before it are asked with their own.
	Query     QueryKind
	QueryFrom int
	// Sketch is the approximation of the keys that Layer.Scores must answer for.
	Sketch Sketch
	// Estimates: the selection says what stands for tokens that are not read ([Selection].Estimates).
	Estimates bool
	// ValueMean: the engine keeps the mean of all values so far per layer and KV head, and mixes it in where [Selection].Share
	// asks for it.
	ValueMean bool
	// Filters names the file whose filters Model.Filters must hold before Bind; empty = none.
	Filters string
	// TokenGranularity: a [Selector]'s picks are single tokens here and there rather than runs, so keys had better lie token by
	// token.
	TokenGranularity bool
	// SinglesByHead: KV heads pick by themselves, by scores ([HeadScoring]) that keep what will be read in memory: then room for single
	// tokens of all heads is worth it.
	SinglesByHead bool
	// SharedAcrossHeads: a [Selector] picks the same tokens for every KV head of a layer.
	SharedAcrossHeads bool
	// HostScores: a [TokenScoring] policy's tokens are scored on the host also where a drive could.
	HostScores bool
	// WholePrompt: hidden states of the whole prompt pass layer by layer (no pruning decision can be made from a part).
	WholePrompt bool
	// Observations are in Layer.Observed where the policy decides about a layer of a prompt ([PromptKeeper], [PromptObserver],
	// [ChannelPruner], [RowPruner]) and at the steps at which it drops tokens.
	Observations []Observation
	// OfModel are in Model.Observed before Bind.
	OfModel []Observation
}

// QueryKind is the query a [Selector] scores with.
type QueryKind uint8

const (
	// QueryExact is this step's query of this layer: nothing can be prefetched.
	QueryExact QueryKind = iota
	// QueryGuess is the layer's query guessed from the previous layer's input (InfiniGen): W_Q(i)·norm(x_{i-1}).
	QueryGuess
	// QueryPrevious is the same layer's query one step earlier.
	QueryPrevious
)

func (k QueryKind) String() string { return [...]string{"exact", "guess", "prev_step"}[k] }

// QueryOf is the query that a [Selector] is asked with in a layer (0-based).
func (n *Needs) QueryOf(layer int) QueryKind {
	if layer < n.QueryFrom {
		return QueryExact
	}
	return n.Query
}

// SketchKind is an approximation of keys that is cheaper to scan than the keys.
type SketchKind uint8

const (
	SketchNone      SketchKind = iota
	SketchBounds               // element-wise minimum and maximum of each block of tokens (Quest)
	SketchInt8                 // 8-bit keys
	SketchInt4                 // 4-bit keys
	SketchHalf                 // the keys in IEEE half precision, as HillInfer's FP16 scoring reads them
	SketchDims                 // the keys themselves, a few dimensions at a time (SparQ)
	SketchProjected            // keys times a matrix with few columns ([Projector]; InfiniGen)
	SketchExact                // the keys themselves, for the oracle
	SketchClusters             // keys grouped by direction, with sums of values (RetroInfer): Scorer.Clusters
	SketchJoint                // the keys of all KV heads side by side times a matrix ([Projector]; KVSwap): Scorer.Approx of KV head 0
	SketchProduct              // product codes: the nearest of few centroids, for each part of a key (PQCache)
	SketchHashes               // tables of keys less their mean by the signs of projections ([Projector]; MagicPIG): Scorer.Colliding
	SketchIndex                // index keys of the model's own indexer: Scorer.Approx of KV head 0, a column a token or block
)

func (k SketchKind) String() string {
	return [...]string{"none", "bounds", "int8", "int4", "half", "dims", "projected", "exact", "clusters", "joint", "product", "hashes", "index"}[k]
}

// Sketch declares an approximation of the keys of one layer.
type Sketch struct {
	Kind   SketchKind
	Blocks []int // SketchBounds: block sizes in tokens, finest first; each a multiple of the one before
	Rank   int   // SketchProjected, SketchJoint, SketchHashes (of all tables together), and SketchInt4 of what is projected: columns; SketchIndex: numbers of an index key
	// IndexBlock and Finish are Index.Block and Index.Finish, for SketchIndex.
	IndexBlock int
	Finish     func(layer, position int, x []float32)
	// Scale says how SketchInt8 and SketchInt4 are scaled.
	Scale SketchScale
	// SketchProduct: parts of a key, bits of a code, rounds of k-means, and first positions that it leaves out.
	Parts, Bits, Iters, Sinks int
	// SketchHashes: Bits of a table's hashes; its mean is of the prompt's keys behind the first Sinks, without the newest Recent.
	Recent int
	// Sample: of more keys than these, k-means sees so many, evenly spread; 0 = all.
	Sample int
	// Always: a prompt with no more keys than centroids has codes too.
	Always bool
	// Balanced: a part of a key has numbers that vary much and numbers that vary little, instead of neighbours.
	Balanced bool
	// First tokens whose keys are kept as they are, beside the codes; parts of a value that is coded too, 0 = none is.
	First, ValueParts, ValueDim int
	// Clusters: how keys are grouped, for SketchClusters.
	Clusters ClusterSketch
	// Listed: what Scorer.Listed multiplies with, beside the sketch.
	Listed ListedKind
	// Stored: what is full of it lies on the tier below host memory, where there is one, and is streamed from there two layers
	// ahead (SketchBounds, SketchHalf, SketchProjected, SketchExact, SketchProduct). Scores are the same.
	Stored bool
}

// SketchScale is the granularity of a low-bit sketch's scales.
type SketchScale uint8

const (
	// ScaleToken: one scale a token and KV head, absmax of its key.
	ScaleToken SketchScale = iota
	// ScaleHead: one scale a layer and KV head, absmax over the prompt's keys; later keys saturate.
	ScaleHead
	// ScaleChannel: one scale a layer, KV head and channel, absmax over the prompt's keys; later keys saturate. The
	// query is multiplied by the scales before it is quantised.
	ScaleChannel
)

// KV reads cached keys and values of one layer as float32 rows.
type KV interface {
	// Keys fills dst [to-from, KeyDim] with the keys, after RoPE, of the tokens at indices from..to-1 of a KV head.
	Keys(kvHead, from, to int, dst []float32)
	// Values fills dst [to-from, ValueDim] likewise.
	Values(kvHead, from, to int, dst []float32)
}

// Rope rotates one head's vector as the layer's position embedding does.
type Rope interface {
	// Rotate turns x [KeyDim], a vector before RoPE, in place into the one at a position.
	Rotate(x []float32, position int)
	// Unrotate undoes Rotate.
	Unrotate(x []float32, position int)
}

// Scorer answers for the sketch that Needs declared. Products are raw: no scale, no softmax. q is [rows, length of the
// sketch's vectors], dst [rows, tokens of the KV head] (Bounds: [rows, ceil(tokens/block)]), both row-major.
type Scorer interface {
	// Dot multiplies with the exact keys.
	Dot(kvHead int, q []float32, rows int, dst []float32)
	// Dims multiplies with the given dimensions of the exact keys only; q still has KeyDim columns.
	Dims(kvHead int, dims []int32, q []float32, rows int, dst []float32)
	// Bounds gives, for each block of `block` tokens in cache order, Σ max(q·min, q·max), no less than any q·k inside; with
	// `only` not nil, for the blocks listed there (ascending): dst is [rows, len(only)].
	Bounds(kvHead, block int, only []int32, q []float32, rows int, dst []float32)
	// SideDims gives, for each block of `block` tokens, the sums over the given dimensions of q times the block's smallest number there
	// where low says so, else its largest: dst is [rows, ceil(tokens/block)], q still has KeyDim columns.
	SideDims(kvHead, block int, dims []int32, low []bool, q []float32, rows int, dst []float32)
	// Approx multiplies with the 8-bit, 4-bit, half, projected or product-coded keys.
	Approx(kvHead int, q []float32, rows int, dst []float32)
	// Listed multiplies with what Sketch.Listed names of the tokens listed (ascending): dst is [rows, len(tokens)].
	Listed(kvHead int, tokens []int32, q []float32, rows int, dst []float32)
	// Tail fills dst [rows, ValueDim] with the sums over all cached tokens of weight times the value that product codes stand for
	// (Sketch.ValueParts), for weights [rows, tokens].
	Tail(kvHead int, weights []float32, rows int, dst []float32)
	// Clusters are the groups of a KV head's tokens (SketchClusters); without any where too few are cached.
	Clusters(kvHead int) *Clusters
	// Colliding fills dst, for each of len(dst) queries, with the tokens that have the query's hash in two tables or more (SketchHashes).
	Colliding(kvHead int, q []float32, dst []Collisions)
	// Trained reports whether there is a sketch: of product codes there is none where the prompt was too short for centroids, of hashes none
	// where it had no token to hash.
	Trained(kvHead int) bool
	// KeyScales fills dst with the scales of 8-bit or 4-bit keys that do not differ by token: 1 for ScaleHead, KeyDim for
	// ScaleChannel. A key is its integers times its scales.
	KeyScales(kvHead int, dst []float32)
	// Products adds to dst [tokens] the integer products of q [KeyDim] with the 8-bit or 4-bit keys, exactly.
	Products(kvHead int, q []int8, dst []int32)
}

// Layer is what the engine shows of one layer of one sequence at one moment. Fields that no Needs asked for may be nil.
// Everything in it belongs to the engine: policies read and never change or keep it.
type Layer struct {
	Index, Layers                    int // 0-based; of the model
	Heads, KVHeads, KeyDim, ValueDim int
	Scale                            float32   // of q·k before softmax; 0 means 1/√KeyDim
	Sinks                            []float32 // [Heads] score of a sink that takes a part of each head's attention and is no token; nil = none
	Window                           int       // sliding window of the layer in tokens; 0 = global
	N                                int       // positions so far, the newest token included: its position is N-1
	Prompt                           int       // positions of the prompt
	KVBytes                          int       // K and V of one token over the layers that policies act on, for budgets in bytes

	Pos [][]int32 // [KVHeads][tokens]: position of each cached token, ascending

	KV      KV
	Rope    Rope
	Scores  Scorer
	Queries []float32 // [Rows, Heads*KeyDim] after RoPE, oldest first; for a Selector: one row, the step's query
	Rows    int

	Observed []Observed // what Needs.Observations has asked for

	IndexQuery []float32 // [Index.Heads·Index.Dim + Index.Heads]: the newest row's index queries and their weights, for a RowSelector

	// ColumnSums is [Heads][tokens of its KV head]: softmax weights that each cached token got, summed over SumRows queries.
	ColumnSums [][]float32
	SumRows    int
	// PromptRows is [Heads][SumRows, tokens of its KV head]: the weights of each of those queries, oldest first.
	PromptRows [][]float32

	// Weights, for a Masker, fills dst [WeightRows*N] with a head's softmax weights of the chunk's newest queries over
	// positions 0..N-1. It works them out at each call, and several threads may call it at once.
	Weights    func(head int, dst []float32)
	WeightRows int
	// Spread, for a Masker, and for a Selector that is no HeadSelector, calls do for 0..n-1, on several threads where there
	// are some; worker numbers below Workers tell them apart. nil: see [Layer.each].
	Spread  func(n int, do func(worker, i int))
	Workers int
}

// each spreads tasks over the threads that the layer offers, or does them one after another.
func (l *Layer) each(n int, do func(worker, i int)) {
	if l.Spread != nil {
		l.Spread(n, do)
		return
	}
	for i := range n {
		do(0, i)
	}
}

// Group is the number of query heads that share a KV head.
func (l *Layer) Group() int { return l.Heads / l.KVHeads }

// Tokens is the number of cached tokens of a KV head.
func (l *Layer) Tokens(kvHead int) int { return len(l.Pos[kvHead]) }

// Query is the newest query row of one head, after RoPE: [KeyDim].
func (l *Layer) Query(head int) []float32 {
	at := (l.Rows-1)*l.Heads*l.KeyDim + head*l.KeyDim
	return l.Queries[at : at+l.KeyDim]
}

// PromptKeeper decides, once a layer, which tokens stay after the prompt.
type PromptKeeper interface {
	Policy
	// KeepPrompt is called for each global layer after the attention of the prompt's last token; layers ascend. keep
	// arrives empty and gets the indices that stay, per KV head, or All.
	KeepPrompt(l *Layer, keep *Selection)
}

// StepDropper decides which tokens go while decoding.
type StepDropper interface {
	Policy
	// DropStep is called for each global layer after the attention of each decode step. drop arrives empty and gets the
	// indices to evict, per KV head.
	DropStep(l *Layer, drop *Selection)
}

// Scheduler is a StepDropper that acts at some steps only; at others the engine need not observe for it, nor call it.
type Scheduler interface {
	StepDropper
	// Due says whether the step that brought the sequence to n tokens (prompt of them its prompt) is one that drops.
	Due(n, prompt int) bool
}

// Selector decides which cached tokens a decode step reads; all stay in the cache.
type Selector interface {
	Policy
	// Select is called for each global layer with the query that Needs.Query names, before the attention. The newest
	// token is in the cache with QueryExact; with QueryGuess and QueryPrevious it may not be yet, and the engine adds
	// it to what is read. read arrives empty and gets the indices to read, per KV head, or All.
	Select(l *Layer, read *Selection)
}

// Reader is a Selector that knows how many tokens of a KV head it reads at most in a layer that has passed l.N tokens, l.N where
// it reads all, in runs that begin at multiples of run: what the step is given memory for. One that is none may read all.
type Reader interface {
	Selector
	Most(l *Layer) (tokens, run int)
}

// HeadScoring is a Selector that says what it has picked each KV head's tokens by: what scored close to them is likely to be picked next,
// and stays in host memory longest.
type HeadScoring interface {
	Selector
	// Ranks is one score a token of a KV head, higher ones rather picked, by the last Select; nil where it had none. It is the policy's
	// and changes with the next Select. Tokens may be fewer than the layer's.
	Ranks(kvHead int) []float32
}

// PromptObserver is a Selector that wants to see each global layer once, after the attention of the prompt's last token and
// before anything of it is dropped; layers ascend.
type PromptObserver interface {
	Selector
	ObservePrompt(l *Layer)
}

// HeadSelector is a Selector that decides each KV head by itself: what it picks in one depends on nothing of the others.
// The engine may ask a separate instance for each KV head, at the same time; each then sees a layer of one KV head.
type HeadSelector interface {
	Selector
	SelectsByHead()
}

// Scanner is a HeadSelector that asks for the products of a head's queries with the whole low-bit sketch (Approx) wherever
// Scans says so, so that they may be computed ahead on several threads.
type Scanner interface {
	HeadSelector
	Scans(l *Layer) bool
}

// TokenScoring is a Selector whose scores can be computed where the keys lie: one score a token and layer, from a query
// that is broadcast, merged in any order ([Merger]). The outcome is that of Select.
type TokenScoring interface {
	Selector
	// Question fills the query to broadcast for a layer; ok is false where this variant must score on the host (Select).
	Question(l *Layer, q *TokenQuery) (ok bool)
	// Choose takes the scores of all cached tokens of the layer, in cache order, and decides as Select would.
	Choose(l *Layer, scores []float32, read *Selection)
	// Wanted says that the best k of the cached tokens with indices below a number are to be found; all: nothing is
	// scored, everything is read.
	Wanted(l *Layer) (k, below int, all bool)
	// Score fills dst with the scores of the keys that l.Scores knows, as they are merged.
	Score(l *Layer, q *TokenQuery, dst []float32)
	// Accept takes the indices of those best, ascending, and decides as Select would.
	Accept(l *Layer, best []int32, read *Selection)
	// BlockLen is the number of tokens of a streamed score block.
	BlockLen() int
	// Weighs says that scores are to be made elsewhere only where that ends sooner than making all of them here.
	Weighs() bool
	// Serial says that the host scores its tokens after the scores from elsewhere have come, not meanwhile.
	Serial() bool
}

// Projector gives the matrix of a projected sketch, once a layer, after the prompt.
type Projector interface {
	Selector
	// Project fills dst [Rank, KeyDim], one row a column of the sketch; the engine stores dst·k for each token and KV
	// head, and Scores.Approx takes queries of Rank columns.
	Project(l *Layer, kvHead int, dst []float32)
}

// Watcher is a policy that sees all queries of a prompt as they come; none is kept for it.
type Watcher interface {
	Policy
	// Watches says whether this variant wants to see them.
	Watches() bool
	// WatchPrompt shows rows of a prompt's queries after RoPE, [rows, Heads·KeyDim], of tokens from position first on: every row
	// once and in order; 0 begins another prompt. l has no queries of its own.
	WatchPrompt(l *Layer, first int, q []float32, rows int)
}

// RowPruner decides which prompt tokens' hidden states leave the residual stream.
type RowPruner interface {
	Policy
	// PruneLayers lists the layers, ascending, after whose attention KeepRows is asked (rows leave before the FFN).
	PruneLayers() []int
	// KeepRows gets one pruning layer during the prompt; alive holds the positions of the rows that reached it. keep gets
	// the positions that go on, ascending.
	KeepRows(l *Layer, alive []int32, keep *Rows)
	// Leaving is how many rows of a prompt of n tokens leave in all, at most; kvBytes are those of a token.
	Leaving(n, kvBytes int) int
}

// Revive says whether what a RowPruner pruned may come back while decoding.
type Revive uint8

const (
	ReviveAuto Revive = iota // as ReviveAux, but not beside a policy that keeps or drops single tokens
	ReviveAux                // from the hidden rows that left, which the engine keeps
	ReviveNone
)

// StepPruner is a RowPruner that chooses again at each decode step which prompt tokens the layers after a pruning layer read
// (LazyLLM). Generated tokens are always read.
type StepPruner interface {
	RowPruner
	// KeepStep is asked after the attention of a pruning layer at each decode step; ColumnSums is that step's; alive holds the
	// prompt positions that it read in this layer. keep gets those that the layers after it read, ascending.
	KeepStep(l *Layer, alive []int32, keep *Rows)
	// Revives says whether the engine is to ask at all.
	Revives() Revive
}

// Rows are positions of hidden rows that go on; All keeps every one.
type Rows struct {
	All bool
	Pos []int32
}

// BlockSwapper follows the active blocks of a RowPruner while decoding (SlimInfer's Algorithm 1).
type BlockSwapper interface {
	RowPruner
	// SwapBlocks is asked after the attention of a pruning layer at each decode step, with the newest queries; it says
	// which blocks of prompt tokens are active in the layers after it.
	SwapBlocks(l *Layer, s *Swap)
	// BlockTokens is the block size in tokens.
	BlockTokens() int
	// Waits says that a swap's transfers are waited for at once; otherwise a block is waited for where a layer reads it.
	Waits() bool
	// Revives says whether the engine is to ask at all.
	Revives() Revive
}

// Swap is the outcome of one step's overlap test at one pruning layer; block numbers ascend.
type Swap struct {
	Changed bool    // the active set was replaced
	Active  []int32 // blocks active after this step
	Load    []int32 // active now, not before: to be brought back
	Offload []int32 // active before, not now
	Overlap float64 // of candidate and previous active set
}

// Masker decides which part of the prefill attention is computed.
type Masker interface {
	Policy
	// MaskPrompt is asked for each global layer and chunk before its attention, with the chunk's queries (Needs.Queries)
	// and the keys up to and with the chunk; it fills one HeadMask a query head, or leaves Dense set.
	MaskPrompt(l *Layer, m *Mask)
}

// Placer decides where tokens lie: hot (fast memory) or cold. Tokens move as a whole, over all layers.
type Placer interface {
	Policy
	// SetBalance gives the throughputs of host and drive, before PlacePrompt; without it as much is hot as fits. Alpha is the
	// policy's own.
	SetBalance(b Balance)
	// Balanced is what part should be hot by what is known now, and why.
	Balanced() Balanced
	// PlacePrompt says after the prompt how many of n tokens are hot, at most hotCapacity: the newest ones.
	PlacePrompt(n, hotCapacity int) (hot int)
	// HotTokens is how many of n tokens should be hot by what is known now, at most hotCapacity.
	HotTokens(n, hotCapacity int) int
	// EndStep is called after each decode step, with n tokens now, the newest one hot. It looks at what Select chose in
	// this step, and fills in what changes place in the background. hotCapacity is the number of tokens hot may hold, found
	// the share of what the step read that was in fast memory, as far as it was measured; -1 = it was not.
	EndStep(n, hotCapacity int, found float64, m *Moves)
	// Decides says that Hot and Moves tell which tokens are hot. Otherwise each layer keeps what it read last, as many tokens
	// as PlacePrompt said, and Moves stay empty.
	Decides() bool
	// WholeTokens says that the keys of a token that becomes hot move over all layers. It implies Decides.
	WholeTokens() bool
	// Hot reports whether a token is hot, by position.
	Hot(position int) bool
}

// Moves are tokens, by position ascending, that change place after a step.
type Moves struct {
	Promote []int32 // cold to hot
	Demote  []int32 // hot to cold
}

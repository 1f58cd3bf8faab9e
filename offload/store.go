package offload

import (
	"context"

	"terrace/csdshim"
)

// Store keeps records. Errors wrap the sentinels of this package and name the store and the key. A call that fails leaves other
// records as they were.
type Store interface {
	// Name is the tier's name in messages and accounts: "host", "ssd", "csd".
	Name() string
	// Shape is the shape of its records, fixed when the store is opened.
	Shape() Shape
	// Write stores whole records, replacing those of the same key; they are stored when it returns, and Data is the
	// caller's again. ErrFull where they don't fit: then nothing has changed. After another error each record is as it was, as
	// written, or missing.
	Write(ctx context.Context, recs []Record) error
	// Read fills every Data. ErrMissing and ErrCorrupt name the key. After an error Data's content is undefined.
	Read(ctx context.Context, recs []Record) error
	// Drop forgets a sequence; one that is not there is no error.
	Drop(seq uint64) error
	// Stats are the counts so far.
	Stats() Stats
	// ResetPeak begins Stats.PeakBytes again from what is in use now.
	ResetPeak()
	// IndexBytes is the most that a sequence adds to Stats.HostBytes when so many groups of every layer are stored; 0 for none.
	IndexBytes(groups int) int64
	// Trim gives back memory of Stats.HostBytes that is kept for later transfers.
	Trim()
	// Close ends the store; calls after it fail with ErrClosed.
	Close() error
}

// Scorer is a Store that scores the keys it holds and hands out single tokens: a computational storage drive. A token's number
// is its place in the sequence as it is stored: GroupTokens·group + place in the group. Errors of the calls below are retried
// as the package documentation says; after that they wrap ErrTier.
type Scorer interface {
	Store
	// Scores is the type of the codes that the store makes of the keys in order to score them; CodesNone: it cannot score.
	Scores() csdshim.Codes
	// SetScales sets the divisors that turn a layer's keys into integer codes, [KVHeads] or [KVHeads][KeyDim], or the centroids of
	// CodesProduct, [KVHeads][KeyDim/2][16][2]. It comes before the layer's first Score, except with CodesHalf, which needs none.
	SetScales(ctx context.Context, seq uint64, layer int, scales []float32) error
	// Score scores the cold tokens of a layer and calls each with one block after another while they arrive; token numbers rise,
	// and none comes twice. The block's slices are valid during the call only. An error of each ends Score.
	Score(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (csdshim.Timing, error)
	// Gather fills dst, ⌈len(tokens)/GroupTokens⌉ records, with single tokens of a layer, whose numbers rise, one after another.
	// It is not retried: Queue.Gather is.
	Gather(ctx context.Context, seq uint64, layer int, tokens []int32, dst []byte) (csdshim.Timing, error)
	// Place marks tokens, in all layers, as hot (the host scores them) or as cold (the store does). All are cold at first.
	Place(ctx context.Context, seq uint64, tokens []int32, hot bool) error
}

// ManyScorer is a Scorer that takes several questions in one message.
type ManyScorer interface {
	Scorer
	// ScoreMany asks questions as Score does each, in one message: the sequences of a batch ask about a layer at the same time. Every
	// question's Done is called, once, before it returns; calls of Each and Done are the caller's goroutine's.
	ScoreMany(ctx context.Context, questions []csdshim.Question)
}

// keyScorer is what a ManyScorer does beside keeping records and handing out single tokens.
type keyScorer interface {
	Scores() csdshim.Codes
	SetScales(ctx context.Context, seq uint64, layer int, scales []float32) error
	Score(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (csdshim.Timing, error)
	ScoreMany(ctx context.Context, questions []csdshim.Question)
	Place(ctx context.Context, seq uint64, tokens []int32, hot bool) error
}

// tokenStore is a Store that hands out single tokens: a Scorer, or a Chain.
type tokenStore interface {
	Gather(ctx context.Context, seq uint64, layer int, tokens []int32, dst []byte) (csdshim.Timing, error)
}

// Stats are a store's byte accounts since it was opened. Without a prefix bytes are what callers asked for; Device… is what
// the device moved for that, alignment and gaps between merged records included.
type Stats struct {
	CapacityBytes, UsedBytes, PeakBytes int64
	HostBytes                           int64 // host memory of the store itself: index, checksums, staging

	Reads, Writes                     int64 // operations of the device
	ReadBytes, WrittenBytes           int64
	DeviceReadBytes, DeviceWriteBytes int64
	Corrupt                           int64 // records that failed their checksum, retried ones included
	Retries                           int64 // SetScales, Score and Place calls that were retried; QueueStats counts transfers

	Paced  bool   // what it reads and writes takes as long as a modelled profile says (csdshim.Identity.Paced)
	Notice string // one line for the user about what the host could not provide; empty: nothing
}

package offload

import (
	"context"

	"terrace/csdshim"
)

// Store keeps records. Errors wrap the sentinels of this package and name the store and the key. A call that fails leaves other
// records as they were.
type Store interface {
	// Name is the tier's name: "host", "ssd", "csd".
	Name() string
	// Shape is what its records are.
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
	// Close ends the store; calls after it fail with ErrClosed.
	Close() error
}

// Scorer is a Store that scores the keys it holds and hands out single tokens: a computational storage drive. Tokens are
// numbered by their place in the sequence as it is stored: group 16g+i.
type Scorer interface {
	Store
	// Scores is what it makes of the keys; CodesNone: it cannot score.
	Scores() csdshim.Codes
	// SetScales says what a layer's keys are divided by to become integers, before it is scored.
	SetScales(ctx context.Context, seq uint64, layer int, scales []float32) error
	// Score calls each with one block of scores of cold tokens after another while they stream in.
	Score(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (csdshim.Timing, error)
	// Gather fills dst with single tokens, one after another in ⌈n/16⌉ records.
	Gather(ctx context.Context, seq uint64, layer int, tokens []int32, dst []byte) (csdshim.Timing, error)
	// Place marks tokens as hot, which the host scores, or as cold, which the drive scores: all, at first.
	Place(ctx context.Context, seq uint64, tokens []int32, hot bool) error
}

// Stats are a store's byte accounts. Asked counts what callers moved, Device what the device did for it (alignment and
// merging over gaps included).
type Stats struct {
	CapacityBytes, UsedBytes, PeakBytes int64
	HostBytes                           int64 // memory that the store holds for itself: index, checksums, staging

	Reads, Writes                     int64 // operations of the device
	ReadBytes, WrittenBytes           int64 // asked for
	DeviceReadBytes, DeviceWriteBytes int64
	Corrupt                           int64 // records that failed their checksum
	Retries                           int64 // calls of a Scorer that were done a second time; QueueStats has the transfers

	Notice string // one line that the user should read, or empty: what the host could not give
}

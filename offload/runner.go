package offload

import (
	"context"

	"terrace/internal/clock"
)

// transfer is what a queue starts as a whole.
type transfer struct {
	t       *Ticket
	dir     int // 0 reads, 1 writes
	records int
	bytes   int64 // asked for
	device  int64 // moved by the device
	retries int   // times that it was begun again

	recs []Record                        // of a blocking store
	call func(ctx context.Context) error // instead of records
	job  *ssdJob                         // of an SSD
}

// ended is told by the runner, once, from any goroutine that holds no lock.
func (tr *transfer) ended(err error) { tr.t.q.ended(tr, err) }

// runner carries a queue's transfers out. It asks transfer.again what to do with one that failed.
type runner interface {
	// plan cuts records into transfers. Each is then launched or abandoned.
	plan(recs []Record, dir int) ([]*transfer, error)
	// launch begins transfers without waiting for them.
	launch(trs []*transfer)
	// abandon forgets a planned transfer.
	abandon(tr *transfer)
	// poll delivers what has ended, in this goroutine; false where there is nothing to poll.
	poll() bool
}

// blocking runs the calls of a store that waits for them, each in a goroutine.
type blocking struct {
	store Store
	ctx   context.Context
	clock clock.Clock
	bytes int64 // about how much a transfer moves
}

// batchBytes is about how much a transfer to such a store moves at most: small enough that an urgent one soon gets its turn. Where little
// may be under way it is less, so that the store works on one while another is taken from it.
const batchBytes = 512 << 10

func (b blocking) plan(recs []Record, dir int) (trs []*transfer, err error) {
	for len(recs) > 0 {
		tr := &transfer{dir: dir, bytes: int64(len(recs[0].Data)), records: 1}
		for tr.records < len(recs) && tr.bytes+int64(len(recs[tr.records].Data)) <= b.bytes {
			tr.bytes += int64(len(recs[tr.records].Data))
			tr.records++
		}
		tr.device = tr.bytes
		tr.recs = recs[:tr.records:tr.records]
		trs = append(trs, tr)
		recs = recs[tr.records:]
	}
	return trs, nil
}

func (b blocking) launch(trs []*transfer) {
	for _, tr := range trs {
		clock.Go(b.clock, func() {
			err := b.carry(tr)
			for tr.again(err) {
				err = b.carry(tr)
			}
			tr.ended(err)
		})
	}
}

func (b blocking) carry(tr *transfer) error {
	switch {
	case tr.call != nil:
		return tr.call(b.ctx)
	case tr.dir == 0:
		return b.store.Read(b.ctx, tr.recs)
	}
	return b.store.Write(b.ctx, tr.recs)
}

func (b blocking) abandon(*transfer) {}
func (b blocking) poll() bool        { return false }

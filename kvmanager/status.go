package kvmanager

import "fmt"

// status is where a block's bytes are: in host memory, on the level below it, which has all that host memory has let go, or on their way
// between the two. A block has one; events change it by the table below and nowhere else.
type status uint8

const (
	unstored status = iota // in memory alone: what the store has of it, if anything, is older
	storing                // in memory, being written
	cached                 // in memory, and the same on the store
	below                  // on the store alone
	fetching               // on the store, being read into memory
	gone                   // of no sequence any more
	statuses
)

var statusNames = [statuses]string{"unstored", "storing", "cached", "below", "fetching", "gone"}

// String is for messages.
func (s status) String() string { return statusNames[s] }

// event is what happens to a block.
type event uint8

const (
	edited event = iota // a sequence wrote to it
	sent                // a write to the store began
	asked               // it has a frame, and a read into it begins
	moved               // the write or read has ended well
	failed              // the write or read has failed
	let                 // it leaves memory
	left                // the last sequence that had it has let it go
	events
)

var eventNames = [events]string{"edited", "sent", "asked", "moved", "failed", "let", "left"}

// String is for messages.
func (e event) String() string { return eventNames[e] }

// never is where an event cannot lead.
const never = statuses

// next is every transition, by status and event. A write that failed leaves bytes that the store may have in part; a read that failed
// leaves those on the store.
var next = [statuses][events]status{
	//         edited    sent     asked     moved   failed    let    left
	unstored: {unstored, storing, never, never, never, never, gone},
	storing:  {never, never, never, cached, unstored, never, never},
	cached:   {unstored, storing, never, never, never, below, gone},
	below:    {never, never, fetching, never, never, never, gone},
	fetching: {never, never, never, cached, below, never, never},
	gone:     {never, never, never, never, never, never, never},
}

// turn changes a block's status.
func (b *block) turn(e event) {
	to := next[b.status][e]
	if to == never {
		panic(fmt.Sprintf("kvmanager: block %d of layer %d is %v and cannot be %v", b.group, b.layer, b.status, e))
	}
	b.status = to
}

// inMemory reports whether a block has its bytes in host memory, or a frame that they are read into.
func (b *block) inMemory() bool { return b.status != below && b.status != gone }

// moving reports whether a block's bytes are on their way.
func (b *block) moving() bool { return b.status == storing || b.status == fetching }

// reading reports whether a block's bytes are on their way to memory.
func (b *block) reading() bool { return b.status == fetching }

// idle reports whether nobody reads, writes or moves a block.
func (b *block) idle() bool { return b.writable == 0 && b.pins == 0 && !b.moving() }

// leaving reports whether a block has no reason to stay in memory.
func (b *block) leaving() bool { return b.status == cached && b.idle() && !b.stays() }

// stays reports whether a block is to stay in memory as long as there is room.
func (b *block) stays() bool { return b.staying > 0 && !b.yielding }

package kvmanager

import "terrace/attention"

// layerStore owns the main pages of a sequence's layers. It is chosen once, when the sequence is made: paged keeps them in host
// memory, tiered in blocks on a backing store, with those that are read in host memory.
//
// A change of tokens that are there is: edit, own for what is written, edited. An append is: reserve, write, appended. A cut at
// the end is followed by truncated.
type layerStore interface {
	// reserve gives the lists of a layer room for more[g] more tokens a KV head, in pages that may be written. Where it fails
	// some may have room: unreserve takes it away.
	reserve(layer int, more []int) error
	// unreserve gives back the pages of a layer that hold no token.
	unreserve(layer int) error
	// appended says that tokens were written, from a page number on.
	appended(layer, first int)
	// edit makes a layer readable, and its pages from a number on the sequence's own.
	edit(layer, first int) error
	// own makes the pages of tokens from to to-1 of a head writable, within an edit, and gives them new versions.
	own(layer, kvHead, from, to int) error
	// edited ends an edit of the pages from a number on, and gives back those that became empty.
	edited(layer, first int) error
	// extra is the bytes that owning the pages of tokens from to to-1 of a head takes, less those that are freed where nothing
	// stays behind to.
	extra(layer, kvHead, from, to int) int64
	// truncated ends a cut of a layer's tokens at its end.
	truncated(layer int) error

	// drop gives back the first n pages of a layer in every head, or fewer where some are on their way, but a multiple of unit; it
	// returns how many. The lists still have them.
	drop(layer, n, unit int) int
	// detach takes n pages of a layer out, from page first[g] on in each head; the lists still have them.
	detach(layer int, first []int, n int) (detached, error)
	// fresh returns n empty pages a head for a layer, in no list.
	fresh(layer, n int) (detached, error)

	// acquire makes the tokens of a layer from a position on readable until release; prefetch begins to.
	acquire(layer int, low int32) error
	prefetch(layer int, low int32)
	release(layer int) error

	// share gives a fork, which has the same lists, the same pages.
	share(fork layerStore) error
	// bytes is what the pages hold, shared ones included.
	bytes() int64
	// free gives every page back.
	free()
}

// detached is whole pages of all KV heads of one layer that are in no list.
type detached interface {
	// pages are a head's; their bytes may be absent where the pages were in a list.
	pages(kvHead int) []attention.Page
	// attach puts pages i to j-1 into the lists, as page number first[g] on in each head.
	attach(i, j int, first []int)
	// bytes is what they hold in host memory.
	bytes() int64
	// free gives back what was not attached.
	free() error
}

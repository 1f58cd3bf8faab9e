package kvmanager

import "terrace/internal/cacheshape"

// lists are the tokens of a sequence: one list a layer that keeps some and KV head.
type lists struct {
	shape cacheshape.Model
	first []int  // each layer's first list among all, [layers+1]
	all   []head // of all layers
	more  []int  // scratch, a KV head
}

// at returns the tokens of a head of a layer that keeps some.
func (x *lists) at(layer, kvHead int) *head { return &x.all[x.first[layer]+kvHead] }

// read returns the tokens that a layer reads: of a head of its own, or of its owner's.
func (x *lists) read(layer, kvHead int) *head { return x.at(x.shape.Owner(layer), kvHead) }

// of returns the lists of a layer, one a KV head; none where it keeps no tokens of its own.
func (x *lists) of(layer int) []head { return x.all[x.first[layer]:x.first[layer+1]] }

// counts is scratch for a number of each KV head of a layer.
func (x *lists) counts(layer int) []int {
	n := len(x.of(layer))
	if cap(x.more) < n {
		x.more = make([]int, n)
	}
	return x.more[:n]
}

// most is the largest number of tokens in main pages of a layer's heads.
func (x *lists) most(layer int) (n int) {
	for i := range x.of(layer) {
		n = max(n, x.of(layer)[i].main.tokens)
	}
	return n
}

// longest is the most tokens of a layer and head.
func (x *lists) longest() (n int) {
	for i := range x.all {
		n = max(n, len(x.all[i].pos))
	}
	return n
}

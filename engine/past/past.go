// Package past has how a session's text was read. A session whose KV a tier has lost reads its text again: prompts as prompts,
// generated tokens one a step, so that every number is what it was (a token's row depends on how it was read, not on when).
//
// Units: tokens. A History belongs to one session and is not safe for concurrent use.
package past

import "slices"

// History is what one session has read, in order; the zero value is that of an empty one.
type History struct {
	Reads      []Read
	Lost       bool // a tier has lost KV: the text must be read again first
	HostScores bool // the drive's scores failed once: the host holds all low-bit keys from then on
}

// Read is a part of what a session has read.
type Read struct {
	Tokens int
	Steps  bool // one token a pass, as decoded; else as prompts
	Open   bool // the beginning of a prompt whose rest is not read yet (Fork to another policy)
	Mixed  bool // read in a way that the session's own policy cannot repeat
}

// Note adds tokens: steps says that they were decoded.
func (h *History) Note(tokens int, steps bool) {
	if n := len(h.Reads); n > 0 {
		if last := &h.Reads[n-1]; last.Steps && steps || last.Open && !steps {
			last.Tokens += tokens
			last.Open = false
			return
		}
	}
	h.Reads = append(h.Reads, Read{Tokens: tokens, Steps: steps})
}

// Forked is the history of a fork with n tokens: the same under the same policy. Under another the prompt's beginning, read
// under none, is read again together with the rest; a compressed context cannot be read again by a session that does not
// compress.
func (h *History) Forked(n int, same, compressed bool) History {
	switch {
	case n == 0:
		return History{}
	case compressed:
		return History{Reads: []Read{{Tokens: n, Mixed: true}}}
	case same:
		return History{Reads: slices.Clone(h.Reads)}
	}
	one := len(h.Reads) == 1 && !h.Reads[0].Steps
	return History{Reads: []Read{{Tokens: n, Open: true, Mixed: !one}}}
}

// Repeatable reports whether reading the text again gives what it gave: not while the rest of a shared prompt is missing.
func (h *History) Repeatable() bool {
	return !slices.ContainsFunc(h.Reads, func(r Read) bool { return r.Open || r.Mixed })
}

// Fixed is how many tokens the text began with that it can neither read again nor take apart.
func (h *History) Fixed() int {
	if len(h.Reads) > 0 && h.Reads[0].Mixed {
		return h.Reads[0].Tokens
	}
	return 0
}

// Cut forgets all but the first n tokens.
func (h *History) Cut(n int) {
	for i := range h.Reads {
		if h.Reads[i].Tokens = min(h.Reads[i].Tokens, n); h.Reads[i].Tokens == 0 {
			h.Reads = h.Reads[:i]
			return
		}
		n -= h.Reads[i].Tokens
	}
}

// Part is how the tokens from one to before another were read.
func (h *History) Part(from, to int) (reads []Read) {
	at := 0
	for _, r := range h.Reads {
		lo, hi := max(at, from), min(at+r.Tokens, to)
		if at += r.Tokens; lo < hi {
			reads = append(reads, Read{Tokens: hi - lo, Steps: r.Steps})
		}
	}
	return reads
}

// Tokens is how many tokens are noted; a prompt that failed is not.
func (h *History) Tokens() (n int) {
	for _, r := range h.Reads {
		n += r.Tokens
	}
	return n
}

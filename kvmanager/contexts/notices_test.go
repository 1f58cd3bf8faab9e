package contexts

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// notices collects what a store says.
type notices struct {
	mu    sync.Mutex
	lines []string
}

func (n *notices) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notices) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// oneLine checks that a store said exactly one thing, with a word in it.
func (n *notices) oneLine(t testing.TB, word string) {
	t.Helper()
	if got := n.all(); len(got) != 1 || !strings.Contains(got[0], word) {
		t.Errorf("it said %q, want one line with %q", got, word)
	}
}

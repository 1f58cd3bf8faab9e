package grammar

import "fmt"

// Bounds of one call of a Machine, and of what it keeps of states beside masks. A unit of work is a thread that reads a byte, an empty
// move, or a frame of a stack that is put together: 30 to 150 ns each.
const (
	maxWork  = 8 << 20
	maxBytes = 96 << 20
)

// Sizes of what is kept, in bytes, about.
const (
	configBytes = 200
	threadBytes = 32
	stackBytes  = 200
	frameBytes  = 24
	rowBytes    = 2 << 10
)

// tooMuch is thrown where a call reaches a bound, and caught by bounded.
type tooMuch struct{ err error }

// bounded runs f, which takes no more than the bounds. After one was reached the machine begins again at the next call.
func (m *Machine) bounded(f func()) (err error) {
	m.left = maxWork
	defer func() {
		if p := recover(); p != nil {
			much, ok := p.(tooMuch)
			if !ok {
				panic(p)
			}
			m.stale, err = true, much.err
		}
	}()
	if m.stale {
		m.stale = false
		m.reset()
	}
	f()
	return nil
}

// spend takes work from what a call may take, and counts bytes that are kept.
func (m *Machine) spend(work, bytes int) {
	if m.left -= work; m.left < 0 {
		panic(tooMuch{fmt.Errorf("grammar: more than %d steps to find what may come next: the grammar is too ambiguous, or its rules nest too deep: %w", maxWork, ErrTooLarge)})
	}
	if m.bytes += bytes; m.bytes > 2*maxBytes {
		panic(tooMuch{fmt.Errorf("grammar: more than %d MiB to find what may come next: the grammar is too ambiguous, or its rules nest too deep: %w", 2*maxBytes>>20, ErrTooLarge)})
	}
}

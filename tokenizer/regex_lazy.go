package tokenizer

import "sync"

// lazyRegex is a built-in pattern compiled at its first use.
type lazyRegex struct {
	pattern string
	compile func() (*regexStage, error)
}

func newLazyRegex(pattern string) *lazyRegex {
	return &lazyRegex{pattern, sync.OnceValues(func() (*regexStage, error) {
		return newTrustedStage(pattern)
	})}
}

func (l *lazyRegex) split(s string, first bool, emit func(word string)) error {
	st, err := l.compile()
	if err != nil {
		return err
	}
	return st.split(s, first, emit)
}

package tokenizer

// A stage cuts a piece of text into consecutive words: it calls emit with
// every word in order, and the words joined are the piece (a stage that
// removes or changes text says so). first is true for a piece that starts
// where the whole text starts. A stage that removes the start of a piece emits
// an empty word for it, so that the next word does not count as the first.
// Hand-written stages never fail; one that runs a model's own regular
// expression may run out of time.
type stage interface {
	split(s string, first bool, emit func(word string)) error
}

// splitter runs stages one after the other, each on every word of the one
// before, as llama.cpp's list of regular expressions and Hugging Face's
// Sequence pre-tokenizer do. The zero splitter leaves the text whole.
type splitter []stage

func (sp splitter) split(s string, first bool, emit func(word string)) error {
	switch len(sp) {
	case 0:
		if s != "" {
			emit(s)
		}
		return nil
	case 1:
		return sp[0].split(s, first, emit)
	}
	var inner error
	err := sp[0].split(s, first, func(word string) {
		if inner == nil && word != "" {
			inner = sp[1:].split(word, first, emit)
		}
		first = false
	})
	if err != nil {
		return err
	}
	return inner
}

// stageFunc is a stage written as a function that finds the end of the word
// starting at byte i of s; it must advance.
type stageFunc func(s string, i int) (end int)

func (f stageFunc) split(s string, _ bool, emit func(word string)) error {
	for i := 0; i < len(s); {
		end := f(s, i)
		emit(s[i:end])
		i = end
	}
	return nil
}

// isolate cuts out what its matcher finds: match returns the end of a match
// that starts at byte i, or i when none does. The text between matches is
// emitted as words too. It is what a regular expression means in a
// pre-tokenizer with the behaviour "isolated".
type isolate func(s string, i int) (end int)

func (match isolate) split(s string, _ bool, emit func(word string)) error {
	gap := 0
	for i := 0; i < len(s); {
		end := match(s, i)
		if end == i {
			_, n := classAt(s, i)
			i += n
			continue
		}
		if gap < i {
			emit(s[gap:i])
		}
		emit(s[i:end])
		i, gap = end, end
	}
	if gap < len(s) {
		emit(s[gap:])
	}
	return nil
}

// runsOf matches [set]+, a maximal run of characters of the given classes.
func runsOf(set class) isolate {
	return func(s string, i int) int { return skipClass(s, i, set) }
}

// eachOf matches one character of the given classes.
func eachOf(set class) isolate {
	return func(s string, i int) int {
		if c, n := classAt(s, i); c&set != 0 {
			return i + n
		}
		return i
	}
}

// upTo matches [set]{1,n}.
func upTo(set class, n int) isolate {
	return func(s string, i int) int { return skipAtMost(s, i, set, n) }
}

// exactDigits matches [0-9] exactly n times.
func exactDigits(n int) isolate {
	return func(s string, i int) int {
		for end := i; end < i+n; end++ {
			if end >= len(s) || s[end] < '0' || s[end] > '9' {
				return i
			}
		}
		return i + n
	}
}

func skipAtMost(s string, i int, set class, most int) int {
	for ; most > 0; most-- {
		c, n := classAt(s, i)
		if n == 0 || c&set == 0 {
			break
		}
		i += n
	}
	return i
}

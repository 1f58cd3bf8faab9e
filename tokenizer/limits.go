package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// EncodeOptions are those of EncodeWith.
type EncodeOptions struct {
	AddSpecial   bool         // BOS and EOS around the text, as the model wants them
	ParseSpecial bool         // control tokens written in the text are recognised
	Mark         Mark         // what Plain has put before those that are not to be; "" = nothing
	Most         int          // ids; a text of more is ErrTooMany, as soon as that is known. 0 = any number
	Pause        func() error // called now and then on the way, at least every millisecond or so of work; an error ends it. nil = not
}

const (
	keptTextBytes = 1 << 18 // texts whose working memory is kept for others
	pauseBytes    = 8 << 10 // of words between two pauses
	pauseSteps    = 1 << 12 // of merges
)

// limits of the encoding in progress.
type limits struct {
	most, covers int
	whole        bool // each byte is in a token
	pause        func() error
	left         int // until the next pause, in bytes; a step counts as pauseBytes / pauseSteps
}

// stop is thrown where an encoding ends early, and caught by stopped.
type stop struct{ err error }

func stopped(err *error) {
	if p := recover(); p != nil {
		s, ok := p.(stop)
		if !ok {
			panic(p)
		}
		*err = s.err
	}
}

func tooMany(most int) error {
	return fmt.Errorf("tokenizer: the text has more than %d tokens: %w", most, ErrTooMany)
}

// word looks at the limits before a word of so many bytes is encoded behind ids.
func (l *limits) word(ids, bytes int) {
	if l.most > 0 {
		least := 0
		if l.covers > 0 && l.whole {
			least = (bytes + l.covers - 1) / l.covers
		}
		if ids+least > l.most {
			panic(stop{tooMany(l.most)})
		}
	}
	l.spend(min(bytes, pauseBytes))
}

// step is called for each merge of a long word.
func (l *limits) step() { l.spend(pauseBytes / pauseSteps) }

func (l *limits) spend(bytes int) {
	if l.pause == nil {
		return
	}
	if l.left -= bytes; l.left > 0 {
		return
	}
	l.left = pauseBytes
	if err := l.pause(); err != nil {
		panic(stop{err})
	}
}

// AtLeast is how many tokens a text has at least, by its bytes; 0 where nothing can be said: what the model drops before it splits a
// text, or says of several characters by one unknown token, has no bound. It takes a millisecond a megabyte or two.
func (t *Tokenizer) AtLeast(text string) int {
	if t.covers == 0 {
		return 0
	}
	n := len(text)
	if t.bpe != nil && !t.vocab.RawText && t.bpe.unknown < 0 {
		for b, id := range t.bpe.bytes {
			if id < 0 { // it is left out
				n -= strings.Count(text, string([]byte{byte(b)}))
			}
		}
	}
	return n / t.covers
}

// mostBytes is how many bytes of text a token stands for at most; 0 = any number.
func (t *Tokenizer) mostBytes() int {
	v, longest := &t.vocab, 4 // an unknown character is a token
	for _, token := range v.Tokens {
		n := len(token)
		if v.Model == ModelBPE && !v.RawText {
			n = utf8.RuneCountInString(token) // a letter of the alphabet a byte
		}
		longest = max(longest, n)
	}
	for _, m := range v.Match {
		if m.LStrip || m.RStrip {
			return 0
		}
	}
	switch {
	case t.bpe != nil:
		if v.FuseUnknown || v.RawText && t.bpe.unknown < 0 && slices.Contains(t.bpe.bytes[:], -1) || v.Split != nil && drops(v.Split) {
			return 0
		}
	case t.spm != nil:
		if v.RemoveExtraSpaces || v.UNK < 0 && slices.Contains(t.spm.bytes[:], -1) {
			return 0
		}
	default:
		return 0
	}
	for _, n := range v.Normalize {
		longest *= n.shrinks // by 0 where there is no bound
	}
	return longest
}

// drops reports whether a splitter may leave out parts of a text.
func drops(list []PreTokenizer) bool {
	return slices.ContainsFunc(list, func(p PreTokenizer) bool {
		switch st := p.stage.(type) {
		case splitter, byteLevelStage, metaspaceStage:
			return false
		case classStage:
			return st.then == removed
		case literalStage:
			return st.then == removed
		case *regexStage:
			return st.then == removed
		}
		return true
	})
}

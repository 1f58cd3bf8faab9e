package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WordPieceVocab is what a WordPiece tokenizer is built from.
type WordPieceVocab struct {
	Tokens []string // text of every id; pieces inside a word begin with ##
	// Special are found in text as they stand, before anything else is done with it.
	Special []string
	// Unknown, Start (before the text) and End (behind it) must be tokens: [UNK], [CLS] and [SEP] in BERT.
	Unknown, Start, End string
	// Cased keeps capital letters; KeepAccents keeps marks (BERT's strip_accents; by default they go where letters are lowered).
	Cased, KeepAccents bool
	// JoinCJK treats Chinese characters like letters; BERT makes each a word.
	JoinCJK bool
}

// WordPiece is BERT's tokenizer (Devlin et al. 2019; Wu et al. 2016): text is cleaned, lowered and split at white space and
// punctuation, and each word is cut into the longest pieces that the vocabulary has, from its start. It is immutable and safe
// for concurrent use. It gives the ids of Hugging Face's BertTokenizerFast.
type WordPiece struct {
	v                   WordPieceVocab
	ids                 map[string]int32
	special             *specials
	unknown, start, end int32
	longest             int // bytes of the longest token
}

// MaxWordRunes is BERT's limit: a longer word is unknown as a whole.
const MaxWordRunes = 100

// NewWordPiece checks the vocabulary. Errors wrap ErrVocab.
func NewWordPiece(v WordPieceVocab) (*WordPiece, error) {
	w := &WordPiece{v: v, ids: make(map[string]int32, len(v.Tokens))}
	for id, text := range v.Tokens {
		if before, dup := w.ids[text]; dup {
			return nil, fmt.Errorf("tokenizer: wordpiece: token %q has the ids %d and %d: %w", text, before, id, ErrVocab)
		}
		w.ids[text] = int32(id)
		w.longest = max(w.longest, len(text))
	}
	for _, s := range []struct {
		text string
		id   *int32
	}{{v.Unknown, &w.unknown}, {v.Start, &w.start}, {v.End, &w.end}} {
		id, ok := w.ids[s.text]
		if !ok {
			return nil, fmt.Errorf("tokenizer: wordpiece: special token %q is not among the %d tokens: %w", s.text, len(v.Tokens), ErrVocab)
		}
		*s.id = id
	}
	w.special = newSpecials(v.Tokens, nil, func(id int) bool { return slices.Contains(v.Special, v.Tokens[id]) })
	return w, nil
}

// Size is the number of tokens.
func (w *WordPiece) Size() int { return len(w.v.Tokens) }

// Token is the text of an id as the vocabulary writes it, "" for one that there is not.
func (w *WordPiece) Token(id int32) string {
	if id < 0 || int(id) >= len(w.v.Tokens) {
		return ""
	}
	return w.v.Tokens[id]
}

// Encode gives the ids of text between the start and the end token. Bytes that are no UTF-8 are left out.
func (w *WordPiece) Encode(text string) []int32 {
	ids := []int32{w.start}
	plain := func(text string) error {
		ids = w.words(ids, w.clean(text))
		return nil
	}
	_ = w.special.split(strings.ToValidUTF8(text, "\uFFFD"), plain, func(id int32) { ids = append(ids, id) })
	return append(ids, w.end)
}

// clean is BERT's normaliser: control characters go, white space is a space, Chinese characters stand alone, accents go,
// letters are lowered.
func (w *WordPiece) clean(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case r == 0 || r == utf8.RuneError || isBertControl(r):
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case !w.v.JoinCJK && isCJK(r):
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	text = b.String()
	if !w.v.KeepAccents {
		text = decomposed(text)
		text = strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Mn, r) {
				return -1
			}
			return r
		}, text)
	}
	if !w.v.Cased {
		text = lower(text)
	}
	return text
}

// words cuts cleaned text at white space, makes every punctuation mark a word, and appends the pieces of each.
func (w *WordPiece) words(ids []int32, text string) []int32 {
	from := 0
	flush := func(to int) {
		if from < to {
			ids = w.pieces(ids, text[from:to])
		}
	}
	for i, r := range text {
		size := utf8.RuneLen(r)
		switch {
		case unicode.IsSpace(r):
			flush(i)
			from = i + size
		case isBertPunctuation(r):
			flush(i)
			ids = w.pieces(ids, text[i:i+size])
			from = i + size
		}
	}
	flush(len(text))
	return ids
}

// pieces appends a word's longest pieces from its start; a word that cannot be cut to its end is unknown as a whole.
func (w *WordPiece) pieces(ids []int32, word string) []int32 {
	if utf8.RuneCountInString(word) > MaxWordRunes {
		return append(ids, w.unknown)
	}
	before := len(ids)
	buf := make([]byte, 2, 2+len(word))
	copy(buf, "##")
	for from := 0; from < len(word); {
		id, end := w.unknown, 0
		prefix := 2
		if from == 0 {
			prefix = 0
		}
		for to := min(len(word), from+w.longest); to > from; to-- {
			if to < len(word) && !utf8.RuneStart(word[to]) {
				continue
			}
			piece := append(buf[:2], word[from:to]...)[2-prefix:]
			if found, ok := w.ids[string(piece)]; ok {
				id, end = found, to
				break
			}
		}
		if end == 0 {
			return append(ids[:before], w.unknown)
		}
		ids, from = append(ids, id), end
	}
	return ids
}

// isBertControl is Unicode's category C, white space that BERT keeps aside; unassigned characters stay.
func isBertControl(r rune) bool {
	return r != '\t' && r != '\n' && r != '\r' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs)
}

// isBertPunctuation is every ASCII character that is neither letter, digit nor space, and Unicode's category P.
func isBertPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~'
	}
	return unicode.Is(unicode.P, r)
}

// cjk are the blocks of Chinese characters that BERT makes words of.
var cjk = [][2]rune{
	{0x4E00, 0x9FFF}, {0x3400, 0x4DBF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF}, {0x2F800, 0x2FA1F},
}

func isCJK(r rune) bool {
	if r < cjk[1][0] {
		return false
	}
	return slices.ContainsFunc(cjk, func(b [2]rune) bool { return r >= b[0] && r <= b[1] })
}

package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// unknownPenalty is how much worse than the worst token an unknown character
// scores (SentencePiece's kUnkPenalty).
const unknownPenalty = 10

// unigramModel picks the segmentation of highest total score (Kudo 2018,
// section 3.2) by Viterbi over a byte trie of the tokens. Immutable.
type unigramModel struct {
	vocab   *Vocab
	scores  []float64
	trie    *specials
	unknown float64
	bytes   [256]int32
	hasByte bool // every byte has a token: unknown characters fall back to them
	charmap *charsmap
}

func newUnigram(v *Vocab) (*unigramModel, error) {
	m := &unigramModel{vocab: v, scores: slices.Clone(v.Scores)}
	lowest := math.Inf(1)
	for id, score := range m.scores {
		if score != score {
			return nil, fmt.Errorf("tokenizer: score %d of token %.40q is not a number: %w", id, v.Tokens[id], ErrVocab)
		}
		switch {
		case v.Outside != nil && !v.Outside[id] || v.Outside == nil && v.typeOf(id) == TypeNormal:
			lowest = min(lowest, score)
		case v.typeOf(id) == TypeUserDefined:
			m.scores[id] = 0
		}
	}
	m.unknown = lowest - unknownPenalty
	m.trie = newSpecials(v.Tokens, nil, func(id int) bool {
		if v.Outside != nil {
			return !v.Outside[id]
		}
		k := v.typeOf(id)
		return k == TypeNormal || k == TypeUserDefined || k == TypeUnused
	})
	m.hasByte = true
	for i := range m.bytes {
		m.bytes[i] = -1
	}
	for id, token := range v.Tokens {
		if b, ok := byteToken(token); ok && m.bytes[b] < 0 {
			m.bytes[b] = int32(id)
		}
	}
	m.hasByte = !v.NoByteFallback && !slices.Contains(m.bytes[:], -1)
	if !m.hasByte && v.UNK < 0 {
		return nil, fmt.Errorf("tokenizer: a unigram vocabulary without an unknown token and without byte tokens: %w", ErrVocab)
	}
	if len(v.Charsmap) > 0 {
		var err error
		if m.charmap, err = newCharsmap(v.Charsmap); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// normalize applies SentencePiece's own steps: the character map, extra
// spaces, the space prefix and the written space. Errors wrap ErrEncode.
func (m *unigramModel) normalize(text string, afterToken bool) (string, error) {
	if m.charmap != nil {
		mapped, ok := m.charmap.normalize(text, normalizedMost(len(text)))
		if !ok {
			return "", tooLong(len(text))
		}
		text = mapped
	}
	if m.vocab.RemoveExtraSpaces {
		text = joinSpaces(text)
	}
	if m.vocab.AddSpacePrefix && afterToken && text != "" {
		text = " " + text
	}
	return strings.ReplaceAll(text, " ", space), nil
}

// joinSpaces trims spaces and leaves one of every run.
func joinSpaces(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }), " ")
}

// unigramScratch is the lattice: for every byte position the best path to it.
type unigramScratch struct {
	best []pathStep
}

type pathStep struct {
	score float64
	from  int32
	id    int32 // -1: an unknown character
}

// encode appends the ids of text.
func (m *unigramModel) encode(sc *scratch, text string, out []int32) []int32 {
	best := sc.unigram.best[:0]
	for range len(text) + 1 {
		best = append(best, pathStep{score: math.Inf(-1)})
	}
	sc.unigram.best = best
	best[0].score = 0
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		sc.limits.step()
		m.extend(best, text, i, size)
		i += size
	}
	from := len(out)
	for at := int32(len(text)); at > 0; at = best[at].from {
		out = m.appendReversed(out, from, text[best[at].from:at], best[at].id)
	}
	slices.Reverse(out[from:])
	return out
}

// extend relaxes every token that starts at byte i, a character of size bytes.
func (m *unigramModel) extend(best []pathStep, text string, i, size int) {
	base := best[i].score
	known := false
	node := int32(0)
	for j := i; j < len(text); j++ {
		if node = m.trie.child(node, text[j], false); node < 0 {
			break
		}
		id := m.trie.nodes[node].id
		if id < 0 {
			continue
		}
		if j+1-i == size {
			known = true
		}
		if score := base + m.scores[id]; score > best[j+1].score {
			best[j+1] = pathStep{score, int32(i), id}
		}
	}
	if score := base + m.unknown; !known && score > best[i+size].score {
		best[i+size] = pathStep{score, int32(i), -1}
	}
}

// appendReversed appends the ids of one step, last first.
func (m *unigramModel) appendReversed(out []int32, from int, piece string, id int32) []int32 {
	unk := int32(m.vocab.UNK)
	if id >= 0 && id != unk {
		return append(out, id)
	}
	if m.hasByte && id < 0 {
		for i := len(piece) - 1; i >= 0; i-- {
			out = append(out, m.bytes[piece[i]])
		}
		return out
	}
	if len(out) > from && out[len(out)-1] == unk {
		return out // neighbouring unknown characters are one token
	}
	return append(out, unk)
}

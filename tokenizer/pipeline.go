package tokenizer

import (
	"errors"
	"strings"
	"unicode/utf8"

	sugarme "github.com/sugarme/tokenizer"
	"github.com/sugarme/tokenizer/normalizer"
)

// Pipeline returns a tokenizer of github.com/sugarme/tokenizer made of this
// one's parts: model, pre-tokenizer and decoder behind that package's
// interfaces. It is for programs that are written against that package, and for
// offsets: the commands here encode with Encode, and only tests call Pipeline,
// to prove that both give the same ids. Tracking the origin of every byte, the
// package reads 0.01 to 0.3 MB/s, about a hundredth of what Encode does. The ids
// are those of Encode with parseSpecial and without addSpecial. Offsets count
// bytes of the text; where the model normalises, of the normalised piece.
//
// Added tokens and normalisation are the pre-tokenizer's work here: the
// package's own added vocabulary leaves out tokens that the model knows, and
// ends the process on an expression that it cannot compile.
func (t *Tokenizer) Pipeline() *sugarme.Tokenizer {
	p := sugarme.NewTokenizer(pipelineModel{t})
	p.WithPreTokenizer(pipelineSplitter{t})
	p.WithDecoder(pipelineDecoder{t})
	return p
}

// pipelineModel implements sugarme.Model.
type pipelineModel struct{ t *Tokenizer }

// Tokenize encodes one word.
func (m pipelineModel) Tokenize(word string) ([]sugarme.Token, error) {
	sc := m.t.pool.Get().(*scratch)
	defer m.t.pool.Put(sc)
	sc.ids = sc.ids[:0]
	m.t.encodeWord(sc, word)
	tokens := make([]sugarme.Token, len(sc.ids))
	at := 0
	for i, id := range sc.ids {
		end := min(at+m.width(int(id), word[at:]), len(word))
		tokens[i] = sugarme.NewToken(int(id), m.t.vocab.Tokens[id], []int{at, end})
		at = end
	}
	return tokens, nil
}

// width is how many bytes of the word a token stands for.
func (m pipelineModel) width(id int, rest string) int {
	text := m.t.vocab.Tokens[id]
	switch {
	case m.t.vocab.typeOf(id) == TypeUnknown:
		return len(rest)
	case m.t.decoding.ByteLevel:
		return len(appendByteAlphabet(nil, text))
	case strings.HasPrefix(rest, text):
		return len(text)
	}
	return 1 // a byte token
}

// TokenToId implements sugarme.Model.
func (m pipelineModel) TokenToId(token string) (int, bool) { return m.t.TokenID(token) }

// IdToToken implements sugarme.Model.
func (m pipelineModel) IdToToken(id int) (string, bool) {
	return m.t.TokenText(id), id >= 0 && id < m.t.Size()
}

// GetVocab implements sugarme.Model.
func (m pipelineModel) GetVocab() map[string]int {
	vocab := make(map[string]int, m.t.Size())
	for id, text := range m.t.vocab.Tokens {
		if _, dup := vocab[text]; !dup {
			vocab[text] = id
		}
	}
	return vocab
}

// GetVocabSize implements sugarme.Model.
func (m pipelineModel) GetVocabSize() int { return m.t.Size() }

// Save implements sugarme.Model; a vocabulary is written by package weights.
func (m pipelineModel) Save(string, ...string) error {
	return errors.New("tokenizer: a pipeline's model is not saved: the model's files hold it")
}

// pipelineSplitter implements sugarme.PreTokenizer.
type pipelineSplitter struct{ t *Tokenizer }

// PreTokenize cuts text at added tokens, which it gives their ids, normalises
// the pieces between and cuts them into words.
func (p pipelineSplitter) PreTokenize(text *sugarme.PreTokenizedString) (*sugarme.PreTokenizedString, error) {
	var failed error
	out := text.Split(func(_ int, piece *normalizer.NormalizedString) []sugarme.SplitIdx {
		w := pieceWords{piece: piece, text: piece.GetNormalized()}
		if err := p.cut(&w); err != nil && failed == nil {
			failed = err
		}
		return w.words
	})
	return out, failed
}

func (p pipelineSplitter) cut(w *pieceWords) error {
	t := p.t
	first, afterToken := true, true
	return t.all.split(w.text,
		func(plain string) error {
			defer func() { first, afterToken = false, false }()
			if t.spm != nil {
				if t.vocab.AddSpacePrefix && afterToken {
					plain = " " + plain
				}
				return t.late.split(strings.ReplaceAll(plain, " ", space),
					func(plain string) error { t.spm.cuts.split(plain, w.add); return nil },
					w.addToken(t))
			}
			if !utf8.ValidString(plain) {
				plain = loosen(plain)
			}
			if t.unigram != nil && t.vocab.Split == nil {
				var err error
				if plain, err = t.unigram.normalize(plain, afterToken); err != nil {
					return err
				}
			}
			plain, start, err := normalizeAll(t.vocab.Normalize, plain, first)
			if err != nil {
				return err
			}
			return t.late.split(plain,
				func(plain string) error { defer func() { start = false }(); return t.stages.split(plain, start, w.add) },
				func(id int32) { start = false; w.addToken(t)(id) })
		},
		func(id int32) {
			first, afterToken = false, true
			w.addToken(t)(id)
		})
}

// pieceWords gathers the words of a piece, each with its place in it where the
// word stands there unchanged.
type pieceWords struct {
	piece *normalizer.NormalizedString
	text  string
	at    int
	words []sugarme.SplitIdx
}

// addToken adds an added token with its id.
func (w *pieceWords) addToken(t *Tokenizer) func(id int32) {
	return func(id int32) {
		text := t.vocab.Tokens[id]
		w.add(text)
		w.words[len(w.words)-1].Tokens = []sugarme.Token{sugarme.NewToken(int(id), text, []int{0, len(text)})}
	}
}

func (w *pieceWords) add(word string) {
	if word == "" {
		return
	}
	if next := strings.Index(w.text[w.at:], word); next >= 0 {
		from := w.at + next
		w.at = from + len(word)
		w.words = append(w.words, sugarme.SplitIdx{Normalized: w.piece.Slice(normalizer.NewRange(from, w.at, normalizer.NormalizedTarget))})
		return
	}
	w.words = append(w.words, sugarme.SplitIdx{Normalized: normalizer.NewNormalizedFrom(word)})
}

// pipelineDecoder implements sugarme.Decoder.
type pipelineDecoder struct{ t *Tokenizer }

// Decode joins the text of tokens.
func (p pipelineDecoder) Decode(tokens []string) string {
	return strings.Join(p.DecodeChain(tokens), "")
}

// DecodeChain returns the text of every token.
func (p pipelineDecoder) DecodeChain(tokens []string) []string {
	out := make([]string, len(tokens))
	start := p.t.newStart()
	for i, token := range tokens {
		out[i] = token
		if id, ok := p.t.TokenID(token); ok {
			out[i] = string(start.append(nil, id, true))
		}
	}
	return out
}

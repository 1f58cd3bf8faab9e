package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Tokenizer turns text into ids and back. It is immutable after New and safe
// for concurrent use. Its methods are what callers ask of a vocabulary: encode,
// decode, name tokens, render chats.
type Tokenizer struct {
	vocab    Vocab
	ids      *tokenTable
	bpe      *bpeModel
	spm      *spmModel
	unigram  *unigramModel
	stages   splitter
	all      *specials // added tokens matched with parseSpecial
	user     *specials // those matched always
	late     *specials // those matched in normalised text
	eog      map[int]bool
	decoding Decoding
	cache    *wordCache
	pool     sync.Pool
	template *chatTemplate
	warnings []Warning
	covers   int // bytes of text that a token stands for at most; 0 = any number
}

// scratch is the working memory of one Encode call.
type scratch struct {
	merger  merger
	spm     spmScratch
	unigram unigramScratch
	syms    []int32
	ids     []int32
	limits  limits
}

// maxTextBytes bounds one text: symbol positions are 32-bit.
const maxTextBytes = math.MaxInt32 / 4

// New builds a tokenizer and checks the vocabulary: every problem is one error
// that wraps ErrVocab or ErrUnsupported and names the entry. Warnings says what
// New noticed and replaced, such as a pre-tokenizer of an unknown name.
func New(v Vocab) (*Tokenizer, error) {
	if err := v.validate(); err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: v, cache: newWordCache()}
	t.pool.New = func() any { return new(scratch) }
	var dup int
	if t.ids, dup = newTokenTable(v.Tokens, nil); dup >= 0 && v.Model == ModelBPE && !v.ownText(dup) {
		return nil, fmt.Errorf("tokenizer: token %d %.40q is in the vocabulary twice: %w", dup, v.Tokens[dup], ErrVocab)
	}
	if v.ControlByText {
		t.vocab.markControl(t.ids)
	}
	if err := t.buildModel(); err != nil {
		return nil, err
	}
	if err := t.buildSpecials(); err != nil {
		return nil, err
	}
	t.covers = t.mostBytes()
	t.decoding = t.vocab.decoding()
	t.eog = t.vocab.endIDs(t.ids)
	if v.ChatTemplate != "" {
		t.template = newChatTemplate(v.ChatTemplate)
	}
	return t, nil
}

func (t *Tokenizer) buildModel() (err error) {
	v := &t.vocab
	switch v.Model {
	case ModelBPE:
		pre, known := preTokenizers[v.Pre]
		t.stages = pre.stages
		if v.Split != nil {
			t.stages = splitterOf(v.Split)
		} else {
			if !known {
				closest := closestPre(v.Pre)
				what := fmt.Sprintf("pre-tokenizer %q is unknown", v.Pre)
				if v.Pre == "" {
					what = "the model names no pre-tokenizer"
				}
				t.warnings = append(t.warnings, Warning(fmt.Sprintf("%s; using the closest known one, %q: tokens may differ from the model's own", what, closest)))
				pre = preTokenizers[closest]
				t.stages = pre.stages
			}
			v.IgnoreMerges = v.IgnoreMerges || pre.ignoreMerges
			v.RawText = v.RawText || pre.raw
			if pre.raw && v.Normalize == nil {
				v.Normalize = []Normalizer{Replace(" ", space)}
			}
		}
		t.bpe, err = newBPE(v, t.ids)
	case ModelSPM:
		t.spm, err = newSPM(v, t.ids)
	case ModelUnigram:
		t.stages = splitterOf(v.Split)
		t.unigram, err = newUnigram(v)
	}
	return err
}

func (t *Tokenizer) buildSpecials() error {
	v := &t.vocab
	late := func(id int) bool { return v.Match[id].Normalized }
	user := func(id int) bool { return v.typeOf(id) == TypeUserDefined }
	special := func(id int) bool {
		k := v.typeOf(id)
		return k == TypeControl || k == TypeUnknown || k == TypeUserDefined
	}
	t.user = newSpecials(v.Tokens, v.Match, func(id int) bool { return user(id) && !late(id) })
	t.all = newSpecials(v.Tokens, v.Match, func(id int) bool { return special(id) && !late(id) })
	normal := v.Tokens
	if len(v.Normalize) > 0 && len(v.Match) > 0 {
		normal = make([]string, len(v.Tokens))
		for id := range v.Match {
			var err error
			if normal[id], _, err = normalizeAll(v.Normalize, v.Tokens[id], false); err != nil {
				return fmt.Errorf("tokenizer: added token %d: %w", id, err)
			}
		}
	}
	t.late = newSpecials(normal, v.Match, func(id int) bool { return special(id) && late(id) })
	return nil
}

// Encode returns the ids of text. addSpecial adds what the model puts around a
// text (BOS, EOS); parseSpecial recognises control tokens written in the text,
// while user-defined tokens are always recognised. Text that is not UTF-8 is
// read as llama.cpp reads it: U+FFFD for a stray byte (byte-level BPE) or the
// bytes themselves (SentencePiece). An error wraps ErrEncode.
func (t *Tokenizer) Encode(text string, addSpecial, parseSpecial bool) ([]int, error) {
	return t.EncodeWith(text, EncodeOptions{AddSpecial: addSpecial, ParseSpecial: parseSpecial})
}

// EncodeWith is Encode under limits.
func (t *Tokenizer) EncodeWith(text string, o EncodeOptions) (ids []int, err error) {
	if len(text) > maxTextBytes {
		return nil, fmt.Errorf("tokenizer: text of %d bytes, at most %d: %w", len(text), maxTextBytes, ErrEncode)
	}
	if o.Most > 0 && t.AtLeast(text) > o.Most {
		return nil, tooMany(o.Most)
	}
	sc := t.pool.Get().(*scratch)
	sc.limits = limits{most: o.Most, covers: t.covers, pause: o.Pause, whole: t.bpe == nil || t.vocab.RawText || t.bpe.unknown >= 0 || !slices.Contains(t.bpe.bytes[:], -1)}
	defer func() {
		if len(text) > keptTextBytes {
			*sc = scratch{} // one huge text must not stay in memory
		}
		sc.limits = limits{}
		t.pool.Put(sc)
	}()
	defer stopped(&err)
	prefix, suffix := t.around(o.AddSpecial)
	sc.ids = append(sc.ids[:0], prefix...)
	special := t.user
	if o.ParseSpecial {
		special = t.all
	}
	first, afterToken := true, true
	err = special.splitMarked(text, o.Mark,
		func(plain string) error {
			if o.Mark != "" {
				plain = strings.ReplaceAll(plain, string(o.Mark), "")
			}
			err := t.encodePlain(sc, plain, first, afterToken)
			first, afterToken = false, false
			return err
		},
		func(id int32) {
			sc.ids = append(sc.ids, id)
			first, afterToken = false, true
		})
	if err != nil {
		return nil, err
	}
	sc.ids = append(sc.ids, suffix...)
	if o.Most > 0 && len(sc.ids) > o.Most {
		return nil, tooMany(o.Most)
	}
	ids = make([]int, len(sc.ids))
	for i, id := range sc.ids {
		ids[i] = int(id)
	}
	return ids, nil
}

// around returns the ids before and after a text.
func (t *Tokenizer) around(addSpecial bool) (prefix, suffix []int32) {
	v := &t.vocab
	switch {
	case !addSpecial:
	case v.Prefix != nil || v.Suffix != nil:
		for _, id := range v.Prefix {
			prefix = append(prefix, int32(id))
		}
		for _, id := range v.Suffix {
			suffix = append(suffix, int32(id))
		}
	default:
		if v.AddBOS && v.BOS >= 0 {
			prefix = []int32{int32(v.BOS)}
		}
		if v.AddEOS && v.EOS >= 0 {
			suffix = []int32{int32(v.EOS)}
		}
	}
	return prefix, suffix
}

// encodePlain appends the ids of text that holds no added token (of those
// matched before normalising). first: it starts the whole text; afterToken: it
// starts the text or follows an added token.
func (t *Tokenizer) encodePlain(sc *scratch, text string, first, afterToken bool) (err error) {
	if t.spm != nil {
		t.encodeSPM(sc, text, afterToken)
		return nil
	}
	if !utf8.ValidString(text) {
		text = loosen(text)
	}
	if t.unigram != nil && t.vocab.Split == nil {
		if text, err = t.unigram.normalize(text, afterToken); err != nil {
			return err
		}
	}
	if text, first, err = normalizeAll(t.vocab.Normalize, text, first); err != nil {
		return err
	}
	if t.late.empty {
		return t.encodeWords(sc, text, first)
	}
	return t.late.split(text,
		func(plain string) error {
			err := t.encodeWords(sc, plain, first)
			first = false
			return err
		},
		func(id int32) {
			sc.ids = append(sc.ids, id)
			first = false
		})
}

func (t *Tokenizer) encodeSPM(sc *scratch, text string, afterToken bool) {
	if t.vocab.AddSpacePrefix && afterToken {
		text = " " + text
	}
	word := func(word string) { t.encodeWord(sc, word) }
	_ = t.late.split(strings.ReplaceAll(text, " ", space), // which fails only where plain does
		func(plain string) error { t.spm.cuts.split(plain, word); return nil },
		func(id int32) { sc.ids = append(sc.ids, id) })
}

func (t *Tokenizer) encodeWords(sc *scratch, text string, first bool) error {
	if text == "" {
		return nil
	}
	return t.stages.split(text, first, func(word string) { t.encodeWord(sc, word) })
}

// encodeWord appends the ids of one word, from the cache where it can.
func (t *Tokenizer) encodeWord(sc *scratch, word string) {
	if word == "" {
		return
	}
	sc.limits.word(len(sc.ids), len(word))
	if len(word) > cacheWordMaxBytes {
		if t.bpe != nil && t.bpe.cuts != nil {
			t.bpe.cuts.split(word, func(piece string) { t.encodePiece(sc, piece) })
			return
		}
		sc.ids = t.encodeNew(sc, word, sc.ids)
		return
	}
	t.encodePiece(sc, word)
}

// encodePiece appends the ids of a word, or of a part of one that merges alone.
func (t *Tokenizer) encodePiece(sc *scratch, word string) {
	if len(word) > cacheWordMaxBytes {
		sc.ids = t.encodeNew(sc, word, sc.ids)
		return
	}
	ids, slot, ok := t.cache.get(word)
	if ok {
		sc.ids = append(sc.ids, ids...)
		return
	}
	from := len(sc.ids)
	sc.ids = t.encodeNew(sc, word, sc.ids)
	slot.Store(&cachedWord{strings.Clone(word), append([]int32(nil), sc.ids[from:]...)})
}

func (t *Tokenizer) encodeNew(sc *scratch, word string, out []int32) []int32 {
	switch {
	case t.bpe != nil:
		return t.bpe.encode(sc, word, out)
	case t.spm != nil:
		return t.spm.encode(sc, word, out)
	}
	return t.unigram.encode(sc, word, out)
}

// Size is the number of ids.
func (t *Tokenizer) Size() int { return len(t.vocab.Tokens) }

// BOS returns the id that starts a text, if the model has one.
func (t *Tokenizer) BOS() (id int, ok bool) { return t.vocab.BOS, t.vocab.BOS >= 0 }

// EOS returns the id that ends a text, if the model has one.
func (t *Tokenizer) EOS() (id int, ok bool) { return t.vocab.EOS, t.vocab.EOS >= 0 }

// PAD returns the id that fills rows up, if the model has one.
func (t *Tokenizer) PAD() (id int, ok bool) { return t.vocab.PAD, t.vocab.PAD >= 0 }

// IsEOG reports whether a generation ends with id.
func (t *Tokenizer) IsEOG(id int) bool { return t.eog[id] }

// AddsBOS reports whether Encode with addSpecial starts with BOS.
func (t *Tokenizer) AddsBOS() bool {
	prefix, _ := t.around(true)
	return len(prefix) > 0 && t.vocab.BOS >= 0 && prefix[0] == int32(t.vocab.BOS)
}

// TokenText is the token as the vocabulary writes it, "" for an id out of range.
func (t *Tokenizer) TokenText(id int) string {
	if id < 0 || id >= len(t.vocab.Tokens) {
		return ""
	}
	return t.vocab.Tokens[id]
}

// TokenID finds a token by the text of the vocabulary.
func (t *Tokenizer) TokenID(text string) (id int, ok bool) {
	found := t.ids.find(text)
	return int(found), found >= 0
}

// Warnings lists what New noticed; nil for nothing.
func (t *Tokenizer) Warnings() []Warning { return t.warnings }

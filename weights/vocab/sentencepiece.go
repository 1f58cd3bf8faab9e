package vocab

import (
	"math"
	"slices"
	"unicode/utf8"

	"terrace/tokenizer"
)

// spModel is the part of SentencePiece's ModelProto that tokenizing needs.
type spModel struct {
	tokens []string
	scores []float64
	types  []tokenizer.TokenType

	kind               uint64 // 1 unigram, 2 BPE
	unk, bos, eos, pad int

	charsmap    []byte
	dummyPrefix bool
	extraSpaces bool // remove_extra_whitespaces
}

// maxPieces is far above any published model.
const maxPieces = 1 << 22

// parseSentencePiece reads tokenizer.model, a protobuf of SentencePiece's
// ModelProto.
func parseSentencePiece(data []byte, s *settings) (v tokenizer.Vocab, err error) {
	m := spModel{kind: 1, unk: 0, bos: 1, eos: 2, pad: -1, dummyPrefix: true, extraSpaces: true}
	err = eachField(data, func(f field) error {
		switch f.number {
		case 1:
			return m.piece(f.bytes)
		case 2:
			return m.trainer(f.bytes)
		case 3:
			return m.normalizer(f.bytes)
		}
		return nil
	})
	if err != nil {
		return v, err
	}
	v = tokenizer.Vocab{
		Tokens: m.tokens, Scores: m.scores, Types: m.types,
		BOS: m.bos, EOS: m.eos, UNK: m.unk, PAD: m.pad,
		AddSpacePrefix: m.dummyPrefix, AddBOS: true,
		Charsmap: m.charsmap, RemoveExtraSpaces: m.extraSpaces,
		Decode: &tokenizer.Decoding{Spaces: true, Bytes: true, Added: true},
	}
	if m.dummyPrefix {
		v.Decode.StripLeft = 1
	}
	switch m.kind {
	case 1:
		v.Model = tokenizer.ModelUnigram
	case 2:
		v.Model, v.Match = tokenizer.ModelSPM, m.matchUserDefined()
	default:
		return v, bad("tokenizer model type %d is neither unigram (1) nor BPE (2)", m.kind)
	}
	if err := addMore(&v, s); err != nil {
		return v, err
	}
	for _, id := range []*int{&v.BOS, &v.EOS, &v.UNK, &v.PAD} {
		if *id >= len(v.Tokens) {
			return v, bad("special token id %d is out of range, the vocabulary has %d tokens", *id, len(v.Tokens))
		}
		*id = max(*id, -1)
	}
	v.AddBOS = v.BOS >= 0
	return v, nil
}

// matchUserDefined lets user-defined pieces be found where SentencePiece finds
// them: in text whose spaces are written U+2581 already. Gemma's runs of spaces
// are such pieces.
func (m *spModel) matchUserDefined() map[int]tokenizer.Match {
	match := map[int]tokenizer.Match{}
	for id, kind := range m.types {
		if kind == tokenizer.TypeUserDefined {
			match[id] = tokenizer.Match{Normalized: true}
		}
	}
	return match
}

func (m *spModel) piece(data []byte) error {
	if len(m.tokens) == maxPieces {
		return bad("more than %d pieces", maxPieces)
	}
	text, score, kind := "", float32(0), uint64(tokenizer.TypeNormal)
	err := eachField(data, func(f field) error {
		switch f.number {
		case 1:
			if !utf8.Valid(f.bytes) {
				return bad("piece %d is not valid UTF-8", len(m.tokens))
			}
			text = string(f.bytes)
		case 2:
			score = math.Float32frombits(uint32(f.value))
		case 3:
			kind = f.value
		}
		return nil
	})
	if err != nil {
		return err
	}
	if kind < uint64(tokenizer.TypeNormal) || kind > uint64(tokenizer.TypeByte) {
		return bad("piece %d %.40q has the unknown type %d", len(m.tokens), text, kind)
	}
	m.tokens = append(m.tokens, text)
	m.scores = append(m.scores, float64(score))
	m.types = append(m.types, tokenizer.TokenType(kind))
	return nil
}

func (m *spModel) trainer(data []byte) error {
	return eachField(data, func(f field) error {
		id := int(int32(f.value))
		switch f.number {
		case 3:
			m.kind = f.value
		case 40:
			m.unk = id
		case 41:
			m.bos = id
		case 42:
			m.eos = id
		case 43:
			m.pad = id
		}
		return nil
	})
}

func (m *spModel) normalizer(data []byte) error {
	return eachField(data, func(f field) error {
		switch f.number {
		case 2:
			m.charsmap = slices.Clone(f.bytes)
		case 3:
			m.dummyPrefix = f.value != 0
		case 4:
			m.extraSpaces = f.value != 0
		}
		return nil
	})
}

// addMore appends what added_tokens.json and tokenizer_config.json add to a
// vocabulary that has no list of added tokens of its own.
func addMore(v *tokenizer.Vocab, s *settings) error {
	added := slices.Clone(s.added)
	for text, value := range s.addedJSON.values {
		id, err := s.addedJSON.integer("id of "+text, value)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(added, func(a addedToken) bool { return a.id == id }) {
			added = append(added, addedToken{id: id, text: text})
		}
	}
	slices.SortFunc(added, func(a, b addedToken) int { return a.id - b.id })
	for _, a := range added {
		if a.id < 0 || a.id > len(v.Tokens) {
			return bad("added token %.40q: id %d is out of range after %d tokens", a.text, a.id, len(v.Tokens))
		}
		if a.id == len(v.Tokens) {
			v.Tokens = append(v.Tokens, a.text)
			v.Types = append(v.Types, tokenizer.TypeUserDefined)
			if v.Scores != nil {
				v.Scores = append(v.Scores, 0)
			}
		}
		a.match.Normalized = false // SentencePiece has no second pass
		markAdded(v, a)
	}
	return nil
}

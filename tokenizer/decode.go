package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Decoding says how tokens become text again, where a model's files say more
// than its kind implies.
type Decoding struct {
	ByteLevel bool // tokens are in GPT-2's byte alphabet
	Spaces    bool // U+2581 is a space
	Bytes     bool // "<0x0A>" is a byte
	StripLeft int  // spaces taken from the start of a text
	DropFirst bool // every U+2581 of the first token vanishes
	// Added: control and user-defined tokens are written as all others are, as a
	// decoder of tokenizer.json does; else their text stands for itself.
	Added bool
}

// decoding returns what the vocabulary implies when it does not say.
func (v *Vocab) decoding() Decoding {
	if v.Decode != nil {
		return *v.Decode
	}
	d := Decoding{ByteLevel: v.Model == ModelBPE && !v.RawText}
	d.Spaces, d.Bytes = !d.ByteLevel, !d.ByteLevel
	if v.AddSpacePrefix {
		d.StripLeft = 1
	}
	return d
}

// appendPiece appends the bytes of one token; control and unknown tokens are
// left out without withSpecial.
func (t *Tokenizer) appendPiece(buf []byte, id int, withSpecial bool) []byte {
	if id < 0 || id >= len(t.vocab.Tokens) {
		return buf
	}
	text := t.vocab.Tokens[id]
	kind := t.vocab.typeOf(id)
	added := kind == TypeControl || kind == TypeUnknown || kind == TypeUserDefined
	if added && kind != TypeUserDefined && !withSpecial {
		return buf
	}
	d := &t.decoding
	if added && !d.Added {
		return append(buf, text...)
	}
	if d.Bytes {
		if b, ok := byteToken(text); ok {
			return append(buf, b)
		}
	}
	if d.ByteLevel {
		return appendByteAlphabet(buf, text)
	}
	if d.Spaces {
		for {
			i := strings.Index(text, space)
			if i < 0 {
				break
			}
			buf = append(append(buf, text[:i]...), ' ')
			text = text[i+len(space):]
		}
	}
	return append(buf, text...)
}

// Pieces are the bytes that each token adds to generated text, none for control tokens that shown does not hold, and the ids that end it.
func (t *Tokenizer) Pieces(shown map[int]bool) (pieces [][]byte, ends []int) {
	pieces = make([][]byte, t.Size())
	for id := range pieces {
		pieces[id] = t.appendPiece(nil, id, shown[id])
		if t.IsEOG(id) {
			ends = append(ends, id)
		}
	}
	return pieces, ends
}

// TokenView is how a token is shown: its own bytes, whatever stands before it, and a name. The name is its text; that of a control token,
// which has no bytes, as the vocabulary writes it; bytes that make no character are written as OpenAI does, bytes:\xe6\x97.
func (t *Tokenizer) TokenView(id int) (name string, own []byte) {
	own = t.appendPiece(nil, id, false)
	switch {
	case len(own) == 0:
		name = t.TokenText(id)
		if name == "" {
			name = fmt.Sprintf("token:%d", id)
		}
		return strings.ToValidUTF8(name, "\uFFFD"), nil
	case utf8.Valid(own):
		return string(own), own
	}
	var b strings.Builder
	b.WriteString("bytes:")
	for _, c := range own {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return b.String(), own
}

// appendByteAlphabet appends the bytes of a byte-level token; one with a rune
// outside the alphabet stands for itself.
func appendByteAlphabet(buf []byte, token string) []byte {
	from := len(buf)
	for i := 0; i < len(token); {
		r, n := utf8.DecodeRuneInString(token[i:])
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return append(buf[:from], token...)
		}
		buf = append(buf, byte(runeBytes[r]))
		i += n
	}
	return buf
}

// Decode joins the bytes of ids; what comes out of Encode comes back as it was
// (less the text's own normalisation). withSpecial writes control tokens by
// their text, otherwise they vanish. The result may hold bytes that are not
// UTF-8 when the ids do; Detokenizer never returns such.
func (t *Tokenizer) Decode(ids []int, withSpecial bool) string {
	buf := make([]byte, 0, 4*len(ids))
	start := t.newStart()
	for _, id := range ids {
		buf = start.append(buf, id, withSpecial)
	}
	return string(buf)
}

// textStart takes away what decoding takes from the start of a text. The
// tokens that are left out count as the start only where llama.cpp decodes so.
type textStart struct {
	t     *Tokenizer
	strip int  // spaces still to take
	drop  bool // the next token is the first
}

func (t *Tokenizer) newStart() textStart {
	return textStart{t, t.decoding.StripLeft, t.decoding.DropFirst}
}

// append is appendPiece for the next token of the text.
func (s *textStart) append(buf []byte, id int, withSpecial bool) []byte {
	from := len(buf)
	buf = s.t.appendPiece(buf, id, withSpecial)
	shown := len(buf) > from
	if shown && s.drop {
		text := strings.ReplaceAll(s.t.vocab.Tokens[id], space, "")
		buf, s.drop = append(buf[:from], text...), false
	}
	if s.strip > 0 {
		buf = stripSpaces(buf, from, s.strip)
	}
	if shown || !s.t.decoding.Added {
		s.strip = 0
	}
	return buf
}

// stripSpaces removes up to n spaces at buf[from:].
func stripSpaces(buf []byte, from, n int) []byte {
	k := 0
	for k < n && from+k < len(buf) && buf[from+k] == ' ' {
		k++
	}
	return append(buf[:from], buf[from+k:]...)
}

// Detokenizer decodes ids as they arrive and never returns half a character.
// It is for one sequence of ids and not safe for concurrent use.
type Detokenizer struct {
	start       textStart
	withSpecial bool
	shown       map[int]bool // control tokens that are written all the same
	pending     []byte       // the start of a character
}

// NewDetokenizer is for generated text: control tokens vanish, and since the
// text follows a prompt its leading space stays.
func (t *Tokenizer) NewDetokenizer() *Detokenizer { return &Detokenizer{start: textStart{t: t}} }

// Show has the detokenizer write the text of some control tokens too; it returns d.
func (d *Detokenizer) Show(ids map[int]bool) *Detokenizer {
	d.shown = ids
	return d
}

// ControlTokens are the ids of control tokens whose text is wanted and that end nothing.
func (t *Tokenizer) ControlTokens(wanted func(text string) bool) map[int]bool {
	ids := map[int]bool{}
	for id, text := range t.vocab.Tokens {
		if t.vocab.typeOf(id) == TypeControl && !t.IsEOG(id) && wanted(text) {
			ids[id] = true
		}
	}
	return ids
}

// NewStartDetokenizer is NewDetokenizer for a text of its own, as Decode writes it.
func (t *Tokenizer) NewStartDetokenizer() *Detokenizer { return &Detokenizer{start: t.newStart()} }

// Push adds a token and returns the characters that are complete now. Bytes
// that can be part of no character come out as U+FFFD.
func (d *Detokenizer) Push(id int) string {
	d.pending = d.start.append(d.pending, id, d.withSpecial || d.shown[id])
	n := wholePrefix(d.pending)
	text := strings.ToValidUTF8(string(d.pending[:n]), "\uFFFD")
	d.pending = append(d.pending[:0], d.pending[n:]...)
	return text
}

// Flush ends the sequence: a character that never became whole is U+FFFD.
func (d *Detokenizer) Flush() string {
	text := strings.ToValidUTF8(string(d.pending), "\uFFFD")
	d.pending = d.pending[:0]
	return text
}

// wholePrefix is the length of b less a character at its end that further
// bytes could complete.
func wholePrefix(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax+1; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

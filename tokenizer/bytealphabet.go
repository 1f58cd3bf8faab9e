package tokenizer

import "unicode/utf8"

// byteRunes is GPT-2's alphabet: every byte is written as one printable rune,
// itself where it is printable in Latin-1, else U+0100 and following.
var byteRunes = func() (runes [256]rune) {
	next := rune(256)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			runes[b] = rune(b)
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
}()

// runeBytes is the inverse of byteRunes for the runes below len(runeBytes);
// -1 marks a rune outside the alphabet.
var runeBytes = func() (bytes [0x144]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

// fromByteAlphabet decodes a token of a byte-level vocabulary into the bytes
// it stands for; ok is false when a rune is outside the alphabet.
func fromByteAlphabet(token string) (raw string, ok bool) {
	buf := make([]byte, 0, len(token))
	for i := 0; i < len(token); {
		r, n := utf8.DecodeRuneInString(token[i:])
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return "", false
		}
		buf = append(buf, byte(runeBytes[r]))
		i += n
	}
	return string(buf), true
}

// ToByteAlphabet writes raw bytes in GPT-2's alphabet, as byte-level
// vocabularies write their tokens: "Ġthe" for " the".
func ToByteAlphabet(raw string) string {
	buf := make([]byte, 0, 2*len(raw))
	for i := range len(raw) {
		buf = utf8.AppendRune(buf, byteRunes[raw[i]])
	}
	return string(buf)
}

// byteToken returns the byte that a token such as "<0x0A>" stands for.
func byteToken(token string) (b byte, ok bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(token[3])
	lo, ok2 := hexDigit(token[4])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

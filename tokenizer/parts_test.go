package tokenizer

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPreTokenizerParts(t *testing.T) {
	regex := func(p, then string, invert bool) PreTokenizer {
		pt, err := SplitRegex(p, then, invert)
		if err != nil {
			t.Fatal(err)
		}
		return pt
	}
	lit := func(sep, then string, invert bool) PreTokenizer {
		pt, err := SplitString(sep, then, invert)
		if err != nil {
			t.Fatal(err)
		}
		return pt
	}
	punct := func(then string) PreTokenizer {
		pt, err := Punctuation(then)
		if err != nil {
			t.Fatal(err)
		}
		return pt
	}
	for _, c := range []struct {
		name  string
		parts []PreTokenizer
		text  string
		want  []string
	}{
		{"isolated", []PreTokenizer{lit("-", "Isolated", false)}, "the-final--x", []string{"the", "-", "final", "-", "-", "x"}},
		{"removed", []PreTokenizer{lit("-", "Removed", false)}, "the-final--x", []string{"the", "final", "x"}},
		{"merged previous", []PreTokenizer{lit("-", "MergedWithPrevious", false)}, "the-final--x", []string{"the-", "final-", "-", "x"}},
		{"merged next", []PreTokenizer{lit("-", "MergedWithNext", false)}, "the-final--x", []string{"the", "-final", "-", "-x"}},
		{"contiguous", []PreTokenizer{lit("-", "Contiguous", false)}, "the-final--x", []string{"the", "-", "final", "--", "x"}},
		{"inverted", []PreTokenizer{regex(`\d+`, "Removed", true)}, "a12b3", []string{"12", "3"}},
		{"linear classes", []PreTokenizer{regex(`\s+|\d`, "Removed", false)}, "a\u00a0b\u0663c", []string{"a", "b", "c"}},
		{"negated classes", []PreTokenizer{regex(`\S+`, "Isolated", false)}, "a b", []string{"a", " ", "b"}},
		{"class in class", []PreTokenizer{regex(`[\s,]+`, "Removed", false)}, "a, b", []string{"a", "b"}},
		{"look-ahead", []PreTokenizer{regex(`\s+(?!\S)|\S+`, "Isolated", false)}, "a   b", []string{"a", "  ", " ", "b"}},
		{"known", []PreTokenizer{regex(gpt4oPattern, "Isolated", false)}, "HelloWORLDs 1234", []string{"Hello", "WORLDs", " ", "123", "4"}},
		{"digits", []PreTokenizer{Digits(false)}, "a123b", []string{"a", "123", "b"}},
		{"each digit", []PreTokenizer{Digits(true)}, "a12b", []string{"a", "1", "2", "b"}},
		{"white space", []PreTokenizer{Whitespace()}, "Hey, you_2!  ok", []string{"Hey", ",", "you_2", "!", "ok"}},
		{"white space split", []PreTokenizer{WhitespaceSplit()}, " Hey, \n you ", []string{"Hey,", "you"}},
		{"punctuation", []PreTokenizer{punct("Isolated")}, "Hey!? $x", []string{"Hey", "!", "?", " ", "$", "x"}},
		{"byte level", []PreTokenizer{ByteLevel(true, true)}, "Hey you", []string{" Hey", " you"}},
		{"byte level bare", []PreTokenizer{ByteLevel(false, false)}, "Hey you", []string{"Hey you"}},
		{"metaspace", []PreTokenizer{Metaspace("\u2581", "always", true)}, "Hey  you", []string{"\u2581Hey", "\u2581", "\u2581you"}},
		{"metaspace first", []PreTokenizer{lit("|", "Isolated", false), Metaspace("\u2581", "first", true)}, "a|b", []string{"\u2581a", "|", "b"}},
		{"metaspace whole", []PreTokenizer{Metaspace("\u2581", "never", false)}, "Hey you", []string{"Hey\u2581you"}},
		{"metaspace first after removed", []PreTokenizer{WhitespaceSplit(), Metaspace("\u2581", "first", true)}, " a b", []string{"a", "b"}},
		{"metaspace first at start", []PreTokenizer{WhitespaceSplit(), Metaspace("\u2581", "first", true)}, "a b", []string{"\u2581a", "b"}},
		{"joiners and fractions", []PreTokenizer{Whitespace()}, "a\u200db \u00bd\u200c2\u00b2\u2163", []string{"a\u200db", "\u00bd", "\u200c2", "\u00b2", "\u2163"}},
		{"word class", []PreTokenizer{regex(`[\w]+`, "Isolated", false)}, "a\u00bdb\u2163", []string{"a", "\u00bd", "b\u2163"}},
		{"sequence", []PreTokenizer{WhitespaceSplit(), Digits(true)}, "a1 b22", []string{"a", "1", "b", "2", "2"}},
	} {
		if got := splitWords(t, splitterOf(c.parts), c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q: got %q, want %q", c.name, c.text, got, c.want)
		}
	}
	if _, err := SplitRegex("x", "Sideways", false); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, err := SplitRegex("(unclosed", "Isolated", false); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, err := SplitRegex(strings.Repeat("a", regexMaxBytes+1), "Isolated", false); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

// TestRegexBounds gives patterns that are exponential or quadratic for a
// backtracking engine: each text is cut, or refused, within a second.
func TestRegexBounds(t *testing.T) {
	probe := strings.Repeat("a", 60) + "!"
	for _, pattern := range []string{`(a+)+$`, `(a|aa)+$`, `(a+)+(?=b)`, `(\w|\w\w)+(?=x)\1`, `(a*)*b`, `(?:a?){50}a{50}(?=b)`} {
		p, err := SplitRegex(pattern, "Isolated", false)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for _, text := range []string{probe, strings.Repeat(probe, 1000)} {
			start := time.Now()
			err := p.stage.split(text, true, func(string) {})
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("%s: %d bytes took %v", pattern, len(text), took)
			}
			if err != nil && !errors.Is(err, ErrEncode) {
				t.Errorf("%s: %v", pattern, err)
			}
		}
	}
}

func TestRegexErrorReachesEncode(t *testing.T) {
	p, err := SplitRegex(`(a+)+(?=b)`, "Isolated", false)
	if err != nil {
		t.Fatal(err)
	}
	v := small()
	v.Split = []PreTokenizer{p, ByteLevel(false, true)}
	if _, err := mustNew(t, v).Encode(strings.Repeat("a", 60)+"!", false, true); !errors.Is(err, ErrEncode) {
		t.Errorf("got %v", err)
	}
}

func TestNormalizers(t *testing.T) {
	replace, err := ReplaceRegex(`\s+`, " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		n          Normalizer
		text, want string
	}{
		{"NFC", NFC(), "e\u0301", "é"}, {"NFD", NFD(), "é", "e\u0301"},
		{"NFKC", NFKC(), "ﬁ①", "fi1"}, {"NFKD", NFKD(), "ﬁé", "fie\u0301"},
		{"lower", Lowercase(), "ÀB", "àb"}, {"prepend", Prepend("_"), "x", "_x"}, {"prepend nothing", Prepend("_"), "", ""},
		{"replace", Replace(" ", "\u2581"), "a b", "a\u2581b"}, {"regex", replace, "a \n b", "a b"},
		{"strip", Strip(true, false), "  x ", "x "}, {"strip right", Strip(false, true), "  x ", "  x"},
		{"accents", StripAccents(), "e\u0301", "e"},
	} {
		if got, _ := c.n.normalize(c.text, 1000); got != c.want {
			t.Errorf("%s: %q: got %q, want %q", c.name, c.text, got, c.want)
		}
	}
	for _, pattern := range []string{`\s+(?!x)`, `[a&&b]`, `[a[^b]]`, `\bx`, `(`} {
		if _, err := ReplaceRegex(pattern, ""); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: got %v", pattern, err)
		}
	}
}

// buildCharsmap writes SentencePiece's blob for a few replacements of single
// bytes: a double array with the root at 0 and the leaf of every key beside it.
func buildCharsmap(t *testing.T, rules map[byte]string) []byte {
	t.Helper()
	units := make([]uint32, 1024)
	const base = 256 // offset of the root's children
	units[0] = base << 10
	var texts []byte
	for b, with := range rules {
		node := base ^ uint32(b)
		leaf := uint32(512) + 2*uint32(b)&^1 // where the value stands
		if leaf >= uint32(len(units)) {
			t.Fatal("table too small")
		}
		units[node] = uint32(b) | 1<<8 | (node^leaf)<<10
		units[leaf] = uint32(len(texts)) | 1<<31
		texts = append(append(texts, with...), 0)
	}
	blob := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		blob = binary.LittleEndian.AppendUint32(blob, u)
	}
	return append(blob, texts...)
}

// made is what a normalizer makes of a short text.
func made(n Normalizer, text string) string {
	out, _ := n.normalize(text, 1000)
	return out
}

// TestNormalizedMost: rules that make too much of a text are an error that names the bound, before the memory is asked for, also where they
// work on the vocabulary's own tokens; what a charsmap may do to a text is bounded alike.
func TestNormalizedMost(t *testing.T) {
	long := strings.Repeat("a", 100)
	regex, err := ReplaceRegex("a", long)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := Precompiled(buildCharsmap(t, map[byte]string{'a': long}))
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]Normalizer{"replace": Replace("a", long), "every place": Replace("", long), "regex": regex, "charsmap": mapped, "prepend": Prepend(strings.Repeat(long, 1000))} {
		v := none(ModelBPE)
		v.Tokens, v.Types, v.Pre = []string{"a", "b"}, []TokenType{1, 1}, "gpt-2"
		v.Normalize = []Normalizer{n, n, n, n, n, n, n, n}
		if _, err := mustNew(t, v).Encode("aaaa bbbb "+long, false, false); !errors.Is(err, ErrEncode) || !strings.Contains(err.Error(), "7296 bytes of 110") {
			t.Errorf("%s: %v", name, err)
		}
		v.Types, v.Match = []TokenType{1, TypeUserDefined}, map[int]Match{1: {Normalized: true}}
		if v.Tokens[1] = "ba"; name == "prepend" {
			continue
		}
		if _, err := New(v); !errors.Is(err, ErrEncode) || !strings.Contains(err.Error(), "added token 1") {
			t.Errorf("%s, of an added token: %v", name, err)
		}
	}
}

func TestCharsmap(t *testing.T) {
	blob := buildCharsmap(t, map[byte]string{'\t': " ", 'X': "xyz", 'q': ""})
	n, err := Precompiled(blob)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := made(n, "aX\tbqé\x00"), "axyz bé\x00"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for cut := range len(blob) { // a truncated or cut table must not crash
		if n, err := Precompiled(blob[:cut]); err == nil {
			made(n, "aX\tbq")
		}
	}
	v := none(ModelUnigram)
	v.Tokens = []string{"<unk>", "\u2581", "a", "b", "\u2581a"}
	v.Scores = []float64{0, -2, -3, -3, -1}
	v.Types = []TokenType{TypeUnknown, 1, 1, 1, 1}
	v.UNK, v.Charsmap, v.RemoveExtraSpaces, v.AddSpacePrefix = 0, blob, true, true
	tok := mustNew(t, v)
	ids, err := tok.Encode("  a\t\ta  b ", false, false)
	if want := []string{"\u2581a", "\u2581a", "\u2581", "b"}; err != nil || !slices.Equal(texts(tok, ids), want) {
		t.Errorf("got %q, %v; want %q", texts(tok, ids), err, want)
	}
}

func TestByteAlphabet(t *testing.T) {
	seen := map[rune]bool{}
	for b := range 256 {
		s := ToByteAlphabet(string([]byte{byte(b)}))
		raw, ok := fromByteAlphabet(s)
		if !ok || raw != string([]byte{byte(b)}) || seen[[]rune(s)[0]] {
			t.Errorf("byte %d: %q %q", b, s, raw)
		}
		seen[[]rune(s)[0]] = true
	}
	if s := ToByteAlphabet(" the\n"); s != "ĠtheĊ" {
		t.Errorf("got %q", s)
	}
	for _, s := range []string{"中", " ", "\u0144"} {
		if _, ok := fromByteAlphabet(s); ok {
			t.Errorf("%q is in the alphabet", s)
		}
	}
	if got := string(appendByteAlphabet([]byte("x"), "中a")); got != "x中a" {
		t.Errorf("got %q", got)
	}
	for s, ok := range map[string]bool{"<0x0A>": true, "<0xfF>": true, "<0x0G>": false, "<0x0A": false, "[0x0A]": false} {
		if _, is := byteToken(s); is != ok {
			t.Errorf("%s: %v", s, is)
		}
	}
}

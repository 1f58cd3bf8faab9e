package schema

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"terrace/grammar"
)

// maskCases are schemas whose masks are found by the ways in which characters are let pass at once.
var maskCases = []string{
	`{"type":"object","properties":{"name":{"type":"string"},"note":{"type":"string","maxLength":9},"no":{"type":"integer"}},"required":["no"]}`,
	`{"type":"object","properties":{"a":{"const":1},"wort":{"type":"null"}},"additionalProperties":{"type":"string","minLength":2}}`,
	`{"type":"string","pattern":"^(\\S+\\s+){0,20}\\S+$"}`,
	`{"type":"string","pattern":"a.*b"}`,
	`{"type":"string","pattern":"^.{2,60}$"}`,
	`{"type":"string","pattern":"^\\S+$","minLength":2,"maxLength":700}`,
	`{"type":"object","patternProperties":{"^w":{"type":"integer"}},"additionalProperties":{"type":"boolean"}}`,
	`{"type":"object","propertyNames":{"maxLength":4}}`,
	`{"type":"string","not":{"enum":["word1","word2"]}}`,
	`{"type":"string","not":{"pattern":"or"}}`,
	`{"type":"array","items":{"type":["string","number"],"maxLength":3}}`,
	`{}`,
}

// wordsVocabulary has tokens enough for the tables that a Vocabulary keeps: words, ends of strings, characters of two to four
// bytes and parts of them, ends of lines that JSON does not escape.
func wordsVocabulary() (*grammar.Vocabulary, [][]byte) {
	_, tokens := vocabulary()
	for i := range 700 {
		tokens = append(tokens, fmt.Appendf(nil, "w%c%d", 'a'+i%26, i), fmt.Appendf(nil, " %dor", i))
	}
	for _, s := range []string{"word", "word1", "word2", "note", "\u2028", "a\u2028b", "é", "éé", "\xc3", "\xa9", "日", "日\xe6", "\xa5本", "😀", "x😀\xf0\x9f", "\\u0041", "\\u00", "\\ud83d", "\\ude00", "\\", "\\\"", `a"`, `":`, `",`, `","`, `",\n  "`, ",\n  \"no", "\n", "\n    ", "      ", "   a", " a b", strings.Repeat("x", 40), strings.Repeat("y z ", 12), "b", `ab"`, "word1\"", "1.5e", "-0", "e+1"} {
		tokens = append(tokens, []byte(s))
	}
	return grammar.NewVocabulary(append(tokens, nil), []int{len(tokens)}), tokens
}

// checkMask compares a mask with what reading each token says.
func checkMask(t *testing.T, s *grammar.State, tokens [][]byte, name, text string) {
	t.Helper()
	mask := maskOf(t, s)
	for id, b := range tokens {
		f := s.Fork()
		if got, want := mask[id>>6]>>(id&63)&1 != 0, f.AcceptText(b) == nil; got != want {
			t.Fatalf("%s: after %q: token %q: mask %v, want %v", name, text, b, got, want)
		}
	}
}

// TestMaskIsExact: along random texts a mask is what reading token by token says, on machines that know much and nothing.
func TestMaskIsExact(t *testing.T) {
	v, tokens := wordsVocabulary()
	rng := rand.New(rand.NewPCG(7, 7))
	for _, c := range maskCases {
		g, err := Compile([]byte(c))
		if err != nil {
			t.Fatal(err)
		}
		m := machineOf(t, g, v)
		for round := range 2 {
			if round == 1 {
				m = machineOf(t, g, v)
			}
			s, text := m.Start(), ""
			for range 10 {
				checkMask(t, s, tokens, c, text)
				var can []int
				mask := maskOf(t, s)
				for id := range tokens {
					if mask[id>>6]>>(id&63)&1 != 0 && (id < 300 || rng.IntN(20) == 0) {
						can = append(can, id)
					}
				}
				if len(can) == 0 {
					break
				}
				id := can[rng.IntN(len(can))]
				if err := s.Accept(id); err != nil {
					t.Fatal(err)
				}
				text += string(tokens[id])
			}
		}
	}
}

// FuzzMask: after any text a mask is what reading token by token says.
func FuzzMask(f *testing.F) {
	v, tokens := wordsVocabulary()
	machines := make([]*grammar.Machine, len(maskCases))
	for i, c := range maskCases {
		g, err := Compile([]byte(c))
		if err != nil {
			f.Fatal(err)
		}
		machines[i] = machineOf(f, g, v)
	}
	f.Add(0, `{"name": "a`)
	f.Add(1, "{\n  \"wor")
	f.Add(2, `"a b c `)
	f.Add(4, `"`+strings.Repeat("é", 50))
	f.Add(8, `"word`)
	f.Add(11, `{"a":[1,{"\u00`)
	f.Fuzz(func(t *testing.T, which int, text string) {
		s := machines[uint(which)%uint(len(machines))].Start()
		for i := range len(text) {
			if s.AcceptText([]byte{text[i]}) != nil {
				break
			}
		}
		checkMask(t, s, tokens, maskCases[uint(which)%uint(len(machines))], text)
	})
}

package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is a set of the Unicode general categories that pre-tokenizers ask
// for. A rune of no class (control, private use, unassigned, surrogate, and a
// byte that is not UTF-8) is "other": patterns reach it as [^\s\p{L}\p{N}].
type class uint8

const (
	classLetter class = 1 << iota // \p{L}
	classNumber                   // \p{N}
	classSpace                    // \s, Unicode White_Space
	classMark                     // \p{M}
	classPunct                    // \p{P}
	classSymbol                   // \p{S}
	classUpper                    // \p{Lu} and \p{Lt}, beside classLetter
	classLower                    // \p{Ll}, beside classLetter
)

// word is what [^\s\p{L}\p{N}] excludes.
const classWord = classLetter | classNumber | classSpace

// asciiClass answers for one byte without any table walk.
var asciiClass = func() (table [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		table[r] = classify(r)
	}
	return table
}()

func classify(r rune) class {
	var c class
	for _, set := range classTables {
		if unicode.Is(set.table, r) {
			c |= set.class
		}
	}
	return c
}

var classTables = []struct {
	table *unicode.RangeTable
	class class
}{
	{unicode.L, classLetter}, {unicode.N, classNumber}, {unicode.White_Space, classSpace},
	{unicode.M, classMark}, {unicode.P, classPunct}, {unicode.S, classSymbol},
	{unicode.Lu, classUpper}, {unicode.Lt, classUpper}, {unicode.Ll, classLower},
}

// runeClasses maps all of Unicode in one byte a rune (1.1 MB), filled from the
// range tables at first use (a few milliseconds): a lookup instead of up to
// nine binary searches a character.
var runeClasses = sync.OnceValue(func() []class {
	classes := make([]class, unicode.MaxRune+1)
	for _, set := range classTables {
		for _, r := range set.table.R16 {
			for i := int(r.Lo); i <= int(r.Hi); i += int(r.Stride) {
				classes[i] |= set.class
			}
		}
		for _, r := range set.table.R32 {
			for i := int(r.Lo); i <= int(r.Hi); i += int(r.Stride) {
				classes[i] |= set.class
			}
		}
	}
	return classes
})

// classAt returns the class of the character of s that starts at byte i, and
// its length in bytes; past the end it returns 0, 0. A byte that is not UTF-8
// is a character of no class.
func classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && size == 1 {
		return 0, 1
	}
	return runeClasses()[r], size
}

// isWord reports whether \w of Unicode's regular expressions (UTS #18, annex C)
// matches r: letters, marks, decimal digits, letter numbers, connectors,
// further alphabetic characters and the two joiners. A half and a superscript
// two are none.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || asciiClass[r]&(classLetter|classNumber) != 0
	}
	return runeClasses()[r]&(classLetter|classMark) != 0 ||
		unicode.In(r, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// skipClass returns the first byte position at or after i whose character is
// not in want.
func skipClass(s string, i int, want class) int {
	for {
		c, n := classAt(s, i)
		if n == 0 || c&want == 0 {
			return i
		}
		i += n
	}
}

// skipNot returns the first byte position at or after i whose character is in
// stop.
func skipNot(s string, i int, stop class) int {
	for {
		c, n := classAt(s, i)
		if n == 0 || c&stop != 0 {
			return i
		}
		i += n
	}
}

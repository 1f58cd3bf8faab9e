package automaton

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// TestSearchAgainstRegexp compares with Go's engine on random texts.
func TestSearchAgainstRegexp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, pattern := range []string{`^ab*c$`, `a|b`, `^(a|bc){2,3}$`, `b{2}`, `^[^a]*$`, `^$`, ``, `(^|,)a(,|$)`, `^a|b$`, `[a-c]+,?$`, `^(ab?|c)*$`, `a.c`, `^\w+$`, `x*`, `^(?:a|b)(c(a|b)){0,2}`, `^a{0}b`, `,$|^,`, `(a|ab)(c|bcd)`, `^((a)|(b))?c\.$`, `\u0061\x62`, `^[\d,-]+$`, `{a`} {
		n, err := Parse(pattern)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		d, err := Search(n)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		gopattern := strings.NewReplacer(`\u0061`, `a`, `{a`, `\{a`).Replace(pattern)
		re := regexp.MustCompile(gopattern)
		no, err := Complement(d)
		if err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			text := make([]byte, rng.IntN(9))
			for i := range text {
				text[i] = "aabbcc,x1.{2}"[rng.IntN(13)]
			}
			want := re.Match(text)
			if d.Match(string(text)) != want || no.Match(string(text)) == want {
				t.Fatalf("%s on %q: %v, want %v; complement %v", pattern, text, d.Match(string(text)), want, no.Match(string(text)))
			}
		}
	}
}

func TestLookAhead(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{`^(?!foo).*$`, []string{"", "fo", "afoo"}, []string{"foo", "foobar"}},
		{`^(?=.*[0-9])(?=.*[a-z]).{3,5}$`, []string{"a1b", "0000z"}, []string{"abc", "123", "a1", "a1a1a1"}},
		{`^a(?!b)`, []string{"a", "ac"}, []string{"ab", "ba"}},
		{`^(a(?!b)|c)`, []string{"a", "c", "ac"}, []string{"ab", "b"}},
		{`a(?!b)`, []string{"aba", "ba"}, []string{"ab", "b"}},
		{`^(?!.*--)[a-z-]+$`, []string{"a-b-c"}, []string{"a--b"}},
		{`^(?!^x$)[xy]+$`, []string{"xx", "y"}, []string{"x"}},
	} {
		n, err := Parse(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Search(n)
		if err != nil {
			t.Fatalf("%s: %v", c.pattern, err)
		}
		for _, s := range c.yes {
			if !d.Match(s) {
				t.Errorf("%s does not match %q", c.pattern, s)
			}
		}
		for _, s := range c.no {
			if d.Match(s) {
				t.Errorf("%s matches %q", c.pattern, s)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for pattern, want := range map[string]error{`(`: ErrSyntax, `a)`: ErrSyntax, `[a`: ErrSyntax, `*`: ErrSyntax, `a**`: ErrSyntax, `[b-a]`: ErrSyntax, `a{2,1}`: ErrSyntax, `\`: ErrSyntax,
		`(a)\1`: ErrUnsupported, `\bfoo`: ErrUnsupported, `(?<=a)b`: ErrUnsupported, `((?!a).)*`: ErrUnsupported, `a{,2}`: ErrUnsupported, `\p{Nope}`: ErrUnsupported, `(?i)a`: ErrUnsupported,
		`a{100000}`: ErrTooLarge, strings.Repeat("(", 300): ErrTooLarge, `(((a{1,1000}){1,1000}){1,1000})`: ErrTooLarge, `(a|b)*a(a|b){18}$`: ErrTooLarge} {
		n, err := Parse(pattern)
		if err == nil {
			_, err = Search(n)
		}
		if !errors.Is(err, want) {
			t.Errorf("%.40s: %v, want %v", pattern, err, want)
		}
	}
}

func TestAlgebra(t *testing.T) {
	texts, err := Texts([]string{"ab", "abc", "", "é"})
	if err != nil {
		t.Fatal(err)
	}
	if n, finite := texts.Finite(100); n != 4 || !finite || !texts.Match("é") || texts.Match("a") {
		t.Errorf("%d texts, finite %v", n, finite)
	}
	long, err := Lengths(2, -1)
	if err != nil {
		t.Fatal(err)
	}
	both, err := Intersect(texts, long)
	if err != nil {
		t.Fatal(err)
	}
	if both.Match("é") || !both.Match("abc") || !long.Free(2) || long.Match("é") || !long.Match("éé") {
		t.Error("lengths")
	}
	none, err := Minus(both, All())
	if err != nil || !none.Empty() || none.Match("") {
		t.Error("nothing is left, want an empty automaton", err)
	}
	if _, finite := long.Finite(9); finite {
		t.Error("an infinite language is called finite")
	}
	if !both.Any(0, 'a', 'z') || both.Any(0, 'b', 'z') {
		t.Error("Any")
	}
}

// TestOpen: from a state every text of so many plain code points can go on, and one of one more cannot.
func TestOpen(t *testing.T) {
	for pattern, want := range map[string]int32{`^.*$`: Unlimited, `a`: Unlimited, `^.{3,7}$`: 7, `^a`: 0, `^[^"\\\n]{2}x?$`: 2, "^[^\\u0000-\\u001f]*$": Unlimited} {
		n, err := Parse(pattern)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Search(n)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Open(0); got != want {
			t.Errorf("%s: %d plain characters can follow the start, want %d", pattern, got, want)
		}
	}
}

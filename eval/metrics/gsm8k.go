package metrics

import (
	"regexp"
	"strings"
)

// invalid is what the harness's regular-expression filter gives where a reply has no match.
const invalid = "[invalid]"

var (
	strictAnswer   = regexp.MustCompile(`#### (-?[0-9.,]+)`)
	flexibleAnswer = regexp.MustCompile(`-?[$0-9.,]{2,}|-?[0-9]+`)
	beforeAnswer   = regexp.MustCompile(`(?s).*#### `)
	lastStop       = regexp.MustCompile(`\.(\n?)$`) // Python's $ also stands before a line break at the very end
)

// GSM8K scores a reply as task gsm8k of lm-evaluation-harness (0.4.13, version 3 of the task): the number after the first "#### "
// (filter strict-match) and the last number anywhere (flexible-extract), each compared with the reference answer, whose
// reasoning ends in "#### NUMBER".
func GSM8K(reply, reference string) (strict, flexible Extracted) {
	strict.Text, flexible.Text = invalid, invalid
	if m := strictAnswer.FindStringSubmatch(reply); m != nil {
		strict.Text = m[1]
	}
	if all := flexibleAnswer.FindAllString(reply, -1); all != nil {
		flexible.Text = all[len(all)-1]
	}
	want := plainNumber(reference)
	for _, e := range []*Extracted{&strict, &flexible} {
		e.Right = plainNumber(e.Text) == want
	}
	return strict, flexible
}

// Extracted is what a filter took out of a reply, and whether it is the right answer.
type Extracted struct {
	Text  string
	Right bool
}

// plainNumber is a text less what the task's regexes_to_ignore take from it, in their order, in lower case.
func plainNumber(s string) string {
	s = strings.NewReplacer(",", "", "$", "").Replace(s)
	s = beforeAnswer.ReplaceAllLiteralString(s, "")
	return lower(lastStop.ReplaceAllString(s, "$1"))
}

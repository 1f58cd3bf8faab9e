package tokenizer

// caseRules are the patterns that cut words where lower case ends (o200k,
// Tekken). With U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and
// W = [\p{Ll}\p{Lm}\p{Lo}\p{M}]:
//
//	[^\r\n\p{L}\p{N}]?U*W+(?i:'s|…)?|[^\r\n\p{L}\p{N}]?U+W*(?i:'s|…)?
//	|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
type caseRules struct {
	digits       int
	contractions bool
}

func (p caseRules) word(s string, i int) int {
	if end := p.letters(s, i); end > i {
		return end
	}
	c, _ := classAt(s, i)
	if c&classNumber != 0 {
		return skipAtMost(s, i, classNumber, p.digits)
	}
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		i++
		c, _ = classAt(s, i)
	}
	if c&classWord == 0 {
		i = skipNot(s, i, classWord)
		for i < len(s) && (s[i] == '\r' || s[i] == '\n' || s[i] == '/') {
			i++
		}
		return i
	}
	return newlineSpaces(s, start)
}

// letters matches the two alternatives for words, or returns i.
func (p caseRules) letters(s string, i int) int {
	c, n := classAt(s, i)
	prefix := i
	if c&(classLetter|classNumber) == 0 && s[i] != '\r' && s[i] != '\n' {
		prefix = i + n
	}
	end, ok := lowerWord(s, prefix)
	if !ok && prefix > i {
		end, ok = lowerWord(s, i) // the prefix is optional: a mark may be the word itself
	}
	if !ok {
		if end = skipUpper(s, prefix); end == prefix {
			return i
		}
	}
	if p.contractions && end < len(s) && s[end] == '\'' {
		end += contraction(s, end, true)
	}
	return end
}

func isUpperLike(c class) bool { return c&(classLetter|classMark) != 0 && c&classLower == 0 }
func isLowerLike(c class) bool { return c&(classLetter|classMark) != 0 && c&classUpper == 0 }

// skipUpper is U* from byte i.
func skipUpper(s string, i int) int {
	for {
		c, n := classAt(s, i)
		if n == 0 || !isUpperLike(c) {
			return i
		}
		i += n
	}
}

// lowerWord is U*W+ from byte i with backtracking: when no W follows the run
// of U, the match ends after the last character of the run that is both.
func lowerWord(s string, i int) (end int, ok bool) {
	start := i
	end = i
	for {
		c, n := classAt(s, i)
		if n == 0 || !isUpperLike(c) {
			break
		}
		i += n
		if isLowerLike(c) {
			end = i
		}
	}
	for {
		c, n := classAt(s, i)
		if n == 0 || !isLowerLike(c) {
			return end, end > start
		}
		i += n
		end = i
	}
}

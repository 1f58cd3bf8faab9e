package tokenizer

// Hand-written forms of the patterns that byte-level BPE models are trained
// with. Each function returns the end of the word that starts at byte i, as
// the first alternative of the pattern that matches there would. All scan
// forward only, so a text takes linear time whatever it holds; the look-ahead
// \s+(?!\S) is one comparison.

// gpt2Word is
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2Word(s string, i int) int {
	if s[i] == '\'' {
		if n := contraction(s, i, false); n > 0 {
			return i + n
		}
	}
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		i++
	}
	switch c, _ := classAt(s, i); {
	case c&classLetter != 0:
		return skipClass(s, i, classLetter)
	case c&classNumber != 0:
		return skipClass(s, i, classNumber)
	case c&classSpace == 0:
		return skipNot(s, i, classWord)
	}
	return spaces(s, start)
}

// contraction returns the length of 's 't 'm 'd 're 've 'll at byte i, which
// holds an apostrophe; 0 when there is none. Upper case counts when fold is
// set.
func contraction(s string, i int, fold bool) int {
	at := func(j int) byte {
		if j >= len(s) {
			return 0
		}
		if b := s[j]; fold && b >= 'A' && b <= 'Z' {
			return b + 'a' - 'A'
		}
		return s[j]
	}
	switch at(i + 1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if at(i+2) == 'e' {
			return 3
		}
	case 'l':
		if at(i+2) == 'l' {
			return 3
		}
	}
	return 0
}

// spaces is \s+(?!\S)|\s+: a run of white space, less its last character when
// a word follows and the run is longer than one.
func spaces(s string, i int) int {
	end, last := i, i
	for {
		c, n := classAt(s, end)
		if n == 0 {
			return end
		}
		if c&classSpace == 0 {
			break
		}
		last, end = end, end+n
	}
	if last > i {
		return last
	}
	return end
}

// newlineSpaces is \s*[\r\n]+|\s+(?!\S)|\s+.
func newlineSpaces(s string, i int) int {
	end, newline := i, i
	for {
		c, n := classAt(s, end)
		if n == 0 || c&classSpace == 0 {
			break
		}
		end += n
		if b := s[end-1]; b == '\n' || b == '\r' {
			newline = end
		}
	}
	if newline > i {
		return newline
	}
	return spaces(s, i)
}

// bpeRules are the parameters in which the Llama 3 family of patterns differ:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//	| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
type bpeRules struct {
	digits       int   // \p{N}{1,digits}; 0 = any number
	contractions bool  // the first alternative is there
	letters      class // \p{L}, or with \p{M}
	punctNewline bool  // [\r\n]* after punctuation
}

var (
	llama3Rules   = bpeRules{digits: 3, contractions: true, letters: classLetter, punctNewline: true}
	qwen2Rules    = bpeRules{digits: 1, contractions: true, letters: classLetter, punctNewline: true}
	qwen35Rules   = bpeRules{digits: 1, contractions: true, letters: classLetter | classMark, punctNewline: true}
	anyDigitRules = bpeRules{digits: 0, contractions: true, letters: classLetter, punctNewline: true}
	turkishRules  = bpeRules{digits: 1, letters: classLetter, punctNewline: true}
)

func (p bpeRules) word(s string, i int) int {
	c, n := classAt(s, i)
	if s[i] == '\'' && p.contractions {
		if n := contraction(s, i, true); n > 0 {
			return i + n
		}
	}
	if c&p.letters != 0 {
		return skipClass(s, i, p.letters)
	}
	if c&classNumber != 0 {
		if p.digits == 0 {
			return skipClass(s, i, classNumber)
		}
		return skipAtMost(s, i, classNumber, p.digits)
	}
	if s[i] != '\r' && s[i] != '\n' {
		if after, _ := classAt(s, i+n); after&p.letters != 0 {
			return skipClass(s, i+n, p.letters)
		}
	}
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		i++
		c, _ = classAt(s, i)
	}
	if c&(classWord|p.letters) == 0 {
		i = skipNot(s, i, classWord|p.letters)
		if p.punctNewline {
			i = skipNewlines(s, i)
		}
		return i
	}
	return newlineSpaces(s, start)
}

func skipNewlines(s string, i int) int {
	for i < len(s) && (s[i] == '\r' || s[i] == '\n') {
		i++
	}
	return i
}

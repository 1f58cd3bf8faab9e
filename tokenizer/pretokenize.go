package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A PreTokenizer cuts text into the words that the model then encodes one by
// one. The values come from this package's constructors, named as in
// tokenizer.json.
type PreTokenizer struct {
	stage stage
}

func splitterOf(list []PreTokenizer) splitter {
	var sp splitter
	for _, p := range list {
		sp = append(sp, p.stage)
	}
	return sp
}

// SplitRegex cuts by a regular expression in Oniguruma's syntax; then is one
// of Hugging Face's behaviors (Isolated, Removed, MergedWithPrevious,
// MergedWithNext, Contiguous). The patterns of well-known models run as
// hand-written scanners; others in linear time where Go's engine can run them,
// else with backtracking under a deadline (ErrEncode when it passes).
func SplitRegex(pattern, then string, invert bool) (PreTokenizer, error) {
	b, err := parseBehavior(then)
	if err != nil {
		return PreTokenizer{}, err
	}
	if known, ok := knownPatterns[pattern]; ok {
		// All of these patterns match every character, so that cutting at
		// matches and cutting out what is between them come to the same words.
		if b == isolated && !invert || b == removed && invert {
			return PreTokenizer{known}, nil
		}
	}
	st, err := newRegexStage(pattern, b, invert)
	if err != nil {
		return PreTokenizer{}, err
	}
	return PreTokenizer{st}, nil
}

// knownPatterns are the expressions of published tokenizer.json files that
// have a hand-written scanner.
var knownPatterns = map[string]splitter{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`:                                                 gpt2Split,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:        llama3Split,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:             qwen2Split,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:            words(anyDigitRules.word),
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: words(qwen35Rules.word),
	gpt4oPattern: gpt4oSplit,
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`: words(caseRules{digits: 1}.word),
}

const gpt4oPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// SplitString cuts at a fixed string.
func SplitString(sep, then string, invert bool) (PreTokenizer, error) {
	b, err := parseBehavior(then)
	if err != nil || sep == "" {
		return PreTokenizer{}, err
	}
	return PreTokenizer{literalStage{sep, b, invert}}, nil
}

type literalStage struct {
	sep    string
	then   behavior
	invert bool
}

func (st literalStage) split(s string, _ bool, emit func(word string)) error {
	var spans [][2]int
	for at := 0; ; {
		i := strings.Index(s[at:], st.sep)
		if i < 0 {
			break
		}
		spans = append(spans, [2]int{at + i, at + i + len(st.sep)})
		at += i + len(st.sep)
	}
	joinSpans(s, spans, st.then, st.invert, emit)
	return nil
}

// classStage is a behavior over what an isolate matcher finds.
type classStage struct {
	match isolate
	then  behavior
}

func (st classStage) split(s string, _ bool, emit func(word string)) error {
	var spans [][2]int
	for i := 0; i < len(s); {
		end := st.match(s, i)
		if end > i {
			spans = append(spans, [2]int{i, end})
			i = end
			continue
		}
		_, n := classAt(s, i)
		i += n
	}
	joinSpans(s, spans, st.then, false, emit)
	return nil
}

// Digits cuts out numbers, one character at a time or in runs.
func Digits(individual bool) PreTokenizer {
	if individual {
		return PreTokenizer{eachOf(classNumber)}
	}
	return PreTokenizer{runsOf(classNumber)}
}

// Punctuation cuts out single punctuation characters.
func Punctuation(then string) (PreTokenizer, error) {
	b, err := parseBehavior(then)
	punct := func(s string, i int) int {
		c, n := classAt(s, i)
		if c&classPunct != 0 || n == 1 && c&classSymbol != 0 {
			return i + n
		}
		return i
	}
	return PreTokenizer{classStage{punct, b}}, err
}

// WhitespaceSplit cuts at white space and drops it.
func WhitespaceSplit() PreTokenizer {
	return PreTokenizer{classStage{runsOf(classSpace), removed}}
}

// Whitespace is \w+|[^\w\s]+ with the spaces dropped.
func Whitespace() PreTokenizer { return PreTokenizer{whitespaceStage{}} }

type whitespaceStage struct{}

func (whitespaceStage) split(s string, _ bool, emit func(word string)) error {
	from, last := 0, 'w' // the kind of the run that starts at from
	kindOf := func(r rune) rune {
		switch {
		case isWord(r):
			return 'w'
		case unicode.Is(unicode.White_Space, r):
			return ' '
		}
		return '.'
	}
	flush := func(end int) {
		switch {
		case last != ' ' && from < end:
			emit(s[from:end])
		case from == 0 && end > 0:
			emit("")
		}
		from = end
	}
	for i, r := range s {
		if kind := kindOf(r); kind != last {
			flush(i)
			last = kind
		}
	}
	flush(len(s))
	return nil
}

// ByteLevel is GPT-2's pre-tokenizer: its pattern when useRegex is set, and a
// space before text that does not start with one when addPrefixSpace is. (The
// byte alphabet itself belongs to the model here.)
func ByteLevel(addPrefixSpace, useRegex bool) PreTokenizer {
	var next splitter
	if useRegex {
		next = gpt2Split
	}
	return PreTokenizer{byteLevelStage{addPrefixSpace, next}}
}

type byteLevelStage struct {
	prefix bool
	next   splitter
}

func (st byteLevelStage) split(s string, first bool, emit func(word string)) error {
	if st.prefix && !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	return st.next.split(s, first, emit)
}

// Metaspace writes spaces as replacement, puts one before the text as scheme
// says (always, first, never) unless it starts with one, and cuts before every
// replacement when split is set.
func Metaspace(replacement, scheme string, split bool) PreTokenizer {
	return PreTokenizer{metaspaceStage{replacement, scheme, split}}
}

type metaspaceStage struct {
	replacement, scheme string
	cut                 bool
}

func (st metaspaceStage) split(s string, first bool, emit func(word string)) error {
	s = strings.ReplaceAll(s, " ", st.replacement)
	if (st.scheme == "always" || st.scheme == "first" && first) && !strings.HasPrefix(s, st.replacement) {
		s = st.replacement + s
	}
	if !st.cut || st.replacement == "" {
		emit(s)
		return nil
	}
	for s != "" {
		_, skip := utf8.DecodeRuneInString(s)
		next := strings.Index(s[skip:], st.replacement)
		if next < 0 {
			emit(s)
			return nil
		}
		emit(s[:skip+next])
		s = s[skip+next:]
	}
	return nil
}

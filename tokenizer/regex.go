package tokenizer

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// Limits on a regular expression that comes with a model. regexp2 backtracks,
// so every match has a deadline and a whole text another one; an expression
// that Go's linear-time regexp can run never needs either.
const (
	regexMatchTimeout = 200 * time.Millisecond
	regexTextTimeout  = 300 * time.Millisecond
	regexTextPerMiB   = 2 * time.Second
	regexMaxBytes     = 1 << 16
	regexStackInts    = 1 << 22 // 32 MiB of backtracking
)

// behavior is what becomes of a match, in the words of Hugging Face's Split
// pre-tokenizer.
type behavior uint8

const (
	isolated behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

func parseBehavior(s string) (behavior, error) {
	for i, name := range []string{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"} {
		if s == name {
			return behavior(i), nil
		}
	}
	return 0, fmt.Errorf("tokenizer: split behavior %q is none of Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous: %w", s, ErrUnsupported)
}

// regexStage splits by a regular expression.
type regexStage struct {
	linear *regexp.Regexp  // set when Go's engine can run it
	back   *regexp2.Regexp // else
	then   behavior
	// invert: matches are the separators' complement (Hugging Face "invert").
	invert bool
	// trusted: a pattern of this package, which needs no deadline.
	trusted bool
}

// newRegexStage compiles a pattern in Oniguruma's syntax. Patterns without
// look-around or backreferences run in linear time; others backtrack under a
// deadline. ASCII-only classes of Go's engine (\s, \d, \w, \b) are widened to
// Unicode or left to the other engine; ^ and $ match at each line.
func newRegexStage(pattern string, then behavior, invert bool) (*regexStage, error) {
	if len(pattern) > regexMaxBytes {
		return nil, fmt.Errorf("tokenizer: split pattern of %d bytes, at most %d: %w", len(pattern), regexMaxBytes, ErrUnsupported)
	}
	plain, err := fromOniguruma(pattern)
	if err != nil {
		return nil, err
	}
	st, err := compileStage(plain, true)
	if err == nil {
		st.then, st.invert = then, invert
	}
	return st, err
}

// newTrustedStage compiles a pattern of this package, whose ^ and $ match at the ends of a text.
func newTrustedStage(pattern string) (*regexStage, error) {
	st, err := compileStage(pattern, false)
	if err == nil && st.back != nil {
		st.trusted, st.back.MatchTimeout = true, regexp2.DefaultMatchTimeout
	}
	return st, err
}

func compileStage(pattern string, lines bool) (*regexStage, error) {
	if re, err := linearRegex(pattern, lines); err == nil {
		return &regexStage{linear: re}, nil
	}
	if wide, ok := widenClasses(pattern); ok {
		pattern = wide
	}
	var o regexp2.RegexOptions
	if lines {
		o = regexp2.Multiline
	}
	re, err := regexp2.Compile(pattern, o, regexp2.OptionMaxBacktrackingStackSize(regexStackInts))
	if err != nil {
		return nil, fmt.Errorf("tokenizer: split pattern %.80q: %v: %w", pattern, err, ErrUnsupported)
	}
	re.MatchTimeout = regexMatchTimeout
	return &regexStage{back: re}, nil
}

// linearRegex compiles a pattern for Go's engine, where that can run it; lines: ^ and $ match at each line.
func linearRegex(pattern string, lines bool) (*regexp.Regexp, error) {
	wide, ok := widenClasses(pattern)
	if !ok {
		return nil, fmt.Errorf("only patterns of linear time are run here")
	}
	if lines {
		wide = "(?m)" + wide
	}
	return regexp.Compile(wide)
}

// widenClasses rewrites \s \d \w for Go's engine, where they mean ASCII. It
// reports false for a pattern with anything that it cannot carry over.
func widenClasses(pattern string) (string, bool) {
	var b strings.Builder
	depth := 0 // inside [...]
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '[' && depth > 0:
			return "", false // nested class
		case c == '[':
			depth++
			b.WriteByte(c)
		case c == ']' && depth > 0:
			depth--
			b.WriteByte(c)
		case c == '&' && depth > 0 && strings.HasPrefix(pattern[i:], "&&"):
			return "", false // intersection
		case c == '\\' && i+1 < len(pattern):
			i++
			class, ok := wideClass(pattern[i], depth > 0)
			if !ok {
				return "", false
			}
			b.WriteString(class)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

func wideClass(c byte, inside bool) (string, bool) {
	var set string
	switch c {
	case 's', 'S':
		set = "\\t-\\r\u0085\\p{Z}"
	case 'd', 'D':
		set = `\p{Nd}`
	case 'w', 'W':
		set = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}` + "Ⓐ-ⓩ🄰-🅉🅐-🅩🅰-🆉"
		if !inside {
			set += "²³¹¼-¾" // an oddity of Oniguruma
		}
	case 'b', 'B', 'G', 'Z', 'h', 'H', 'R', 'X', 'K':
		return "", false
	default:
		return `\` + string(rune(c)), c < 0x80
	}
	switch negated := c < 'a'; {
	case inside && negated:
		return "", false
	case inside:
		return set, true
	case negated:
		return "[^" + set + "]", true
	default:
		return "[" + set + "]", true
	}
}

func (st *regexStage) split(s string, _ bool, emit func(word string)) error {
	spans, err := st.find(s)
	if err != nil {
		return err
	}
	joinSpans(s, spans, st.then, st.invert, emit)
	return nil
}

// find returns the matches as byte ranges, in order; an empty one cuts where it is, unless a match ends there.
func (st *regexStage) find(s string) ([][2]int, error) {
	if st.linear != nil {
		var spans [][2]int
		for _, m := range st.linear.FindAllStringIndex(s, -1) {
			spans = append(spans, [2]int(m))
		}
		return spans, nil
	}
	spans, err := st.backtrack(s)
	if err != nil {
		// Deadlines are by the wall clock: on a busy machine the first one may
		// pass while nothing runs.
		spans, err = st.backtrack(s)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: the model's split pattern %.60q on a text of %d bytes: %.100v: %w", st.back.String(), len(s), err, ErrEncode)
	}
	return spans, nil
}

// backtrack is find with regexp2, under the deadlines of a pattern that is not
// ours.
func (st *regexStage) backtrack(s string) (spans [][2]int, err error) {
	deadline := time.Now().Add(regexTextTimeout + time.Duration(len(s))*regexTextPerMiB>>20)
	m, err := st.back.FindStringMatch(s)
	for n := 0; err == nil && m != nil; n++ {
		if from, length := m.ByteRange(); length > 0 || len(spans) == 0 || spans[len(spans)-1][1] < from {
			spans = append(spans, [2]int{from, from + length})
		}
		if n%64 == 0 && !st.trusted && time.Now().After(deadline) {
			return nil, fmt.Errorf("no end after %v", regexTextTimeout)
		}
		m, err = st.back.FindNextMatch(m)
	}
	return spans, err
}

// joinSpans turns matches into words as the behavior asks.
func joinSpans(s string, spans [][2]int, then behavior, invert bool, emit func(word string)) {
	type piece struct {
		from, to int
		match    bool
	}
	pieces := make([]piece, 0, 2*len(spans)+1)
	at := 0
	for _, m := range spans {
		if at < m[0] {
			pieces = append(pieces, piece{at, m[0], invert})
		}
		pieces = append(pieces, piece{m[0], m[1], !invert})
		at = m[1]
	}
	if at < len(s) {
		pieces = append(pieces, piece{at, len(s), invert})
	}
	word := func(from, to int) {
		if from < to {
			emit(s[from:to])
		}
	}
	from := 0 // start of the word being gathered
	for i, p := range pieces {
		last := i == len(pieces)-1
		switch then {
		case isolated:
			word(p.from, p.to)
		case removed:
			if !p.match {
				word(p.from, p.to)
			} else if i == 0 && p.to > 0 {
				emit("")
			}
		case contiguous:
			if last || pieces[i+1].match != p.match {
				word(from, p.to)
				from = p.to
			}
		case mergedWithPrevious:
			// A match closes the word before it; two matches in a row do not join.
			if last || p.match || !pieces[i+1].match {
				word(from, p.to)
				from = p.to
			}
		case mergedWithNext:
			if last || !p.match || pieces[i+1].match {
				word(from, p.to)
				from = p.to
			}
		}
	}
}

// regexPre names pre-tokenizers that are not worth a hand-written scanner.
type regexPre struct {
	names        []string
	stages       splitter
	ignoreMerges bool
	addBOS       bool
}

// regexPreTokenizers compiles the rarer patterns of llama.cpp's list. They
// have no nested repeats, so backtracking stays linear in practice and is under
// the deadline anyway.
func regexPreTokenizers() []regexPre {
	lazy := func(patterns ...string) splitter {
		stages := make(splitter, len(patterns))
		for i, p := range patterns {
			stages[i] = newLazyRegex(p)
		}
		return stages
	}
	const han = "[一-龥぀-ゟ゠-ヿ]+"
	const asian = "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"
	const contractions = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`
	const deepseek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
	// What Kimi K2 splits words of by case, Han aside.
	const upper, lower = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]`, `[\p{Ll}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]`
	const contracted = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	const kimi = `\p{Han}+|[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+` + contracted + `|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*` + contracted +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	const latin = `\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`
	return []regexPre{
		{names: []string{"deepseek-llm"}, stages: lazy(`[\r\n]`, latin, `\s?[!-/:-~！-／：-～‘-‟　-。]+`, `\s+$`, "[一-龥ࠀ-一가-퟿]+", `\p{N}+`)},
		{names: []string{"kimi-k2"}, stages: lazy(kimi)},
		{names: []string{"superbpe"}, stages: splitter{newLazyRegex(`\p{N}+`), thousands(unicode.Nd)}},
		{names: []string{"afmoe"}, stages: splitter{thousands(unicode.N), newLazyRegex(asian), newLazyRegex(deepseek3)}},
		{names: []string{"spark2_5"}, stages: lazy(`\p{N}{1,3}`, han, strings.Replace(strings.Replace(deepseek3, `+[\r\n]*|`, `+|`, 1), `|\s*[\r\n]+|`, `|[\r\n]|`, 1), `\p{N}`)},
		{names: []string{"chameleon"}, addBOS: true, stages: append(lazy(`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, `([\t\n]|    |  )`, `\p{N}`, "[\\p{P}!-/:-@\\[-`{-~]"), stageFunc(gpt2Word))},
		{names: []string{"exaone-moe"}, stages: lazy(contractions + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`)},
		{names: []string{"jais-2"}, stages: lazy(contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`)},
		{names: []string{"granite-embed-multi-97m"}, ignoreMerges: true, stages: lazy(`[^\r\n\p{L}\p{N}]?[\p{L}\p{M}-[a-z]]*[\p{L}\p{M}-[A-Z]]+` + contractions + `?|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}-[a-z]]+[\p{L}\p{M}-[A-Z]]*` + contractions + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`)},
		{names: []string{"tiny_aya", "cohere2moe"}, stages: splitter{newLazyRegex(`\d{1,3}(?=(?:\d{3})*\b)`), gpt4oSplit[0]}},
		{names: []string{"youtu"}, ignoreMerges: true, stages: splitter{newLazyRegex(`[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+`), stageFunc(caseRules{digits: 1, contractions: true}.word)}},
		{names: []string{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, stages: lazy(`\p{N}{1,3}`, han, deepseek3)},
		{names: []string{"deepseek-coder"}, stages: lazy(`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, "[一-龥ࠀ-一가-퟿]+", `\p{N}`)},
		{names: []string{"poro-chat", "bloom", "gpt3-finnish"}, stages: lazy(` ?[^(\s|.,!?…。，、।۔،)]+`)},
		{names: []string{"viking"}, stages: lazy(` ?[^(\s|.,!?…。，、।۔،)]+`, `\p{N}`)},
		{names: []string{"seed-coder"}, stages: lazy(`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`)},
	}
}

// thousands matches digits, characters of a table, so that a run of them is cut into threes from its end.
func thousands(table *unicode.RangeTable) isolate {
	return func(s string, i int) int {
		digits := 0
		for j := i; j < len(s); {
			r, n := utf8.DecodeRuneInString(s[j:])
			if !unicode.Is(table, r) {
				break
			}
			digits, j = digits+1, j+n
		}
		take := digits % 3
		if digits > 0 && take == 0 {
			take = 3
		}
		for range take {
			_, n := utf8.DecodeRuneInString(s[i:])
			i += n
		}
		return i
	}
}

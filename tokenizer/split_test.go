package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/dlclark/regexp2/v2"
)

// officialPatterns are the expressions that the models were trained with
// (tokenizer.json), or llama.cpp's where a name has no other source; each list
// is applied in turn, the text between matches kept.
var officialPatterns = map[string][]string{
	"gpt-2":     {`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`},
	"smollm":    {`\p{N}`, `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`},
	"llama-bpe": {`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"qwen2":     {`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"qwen35":    {`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"ufakzeka":  {`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"minicpm5":  {`\p{N}{1,3}`, `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"gpt-4o":    {strings.ReplaceAll(gpt4oPattern, `(?i:'s|'t|'re|'ve|'m|'ll|'d)`, `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`)},
	"tekken":    {`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"default":   {`[\p{P}\$\+<=>\^~\|]+`, `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, `\p{N}+`, `[0-9][0-9][0-9]`},
	"falcon":    {"[\\p{P}\\$\\+<=>\\^~\\|`]+", `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, `[0-9][0-9][0-9]`},
	"laguna":    {`[^\n]+|[\n]+`, `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"gemma4":    {`[^\n]+|[\n]+`},
	"afmoe": {`\p{N}{1,2}(?=(?:\p{N}{3})+(?!\p{N}))|\p{N}{3}|\p{N}{1,2}`, "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
	"spark2_5": {`\p{N}{1,3}`, "[一-龥぀-ゟ゠-ヿ]+",
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+", `\p{N}`},
	"chameleon":               {`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, `([\t\n]|    |  )`, `\p{N}`, "[\\p{P}!-/:-@\\[-`{-~]", `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`},
	"exaone-moe":              {`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`},
	"jais-2":                  {`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`},
	"granite-embed-multi-97m": {`[^\r\n\p{L}\p{N}]?((?=[\p{L}\p{M}])([^a-z]))*((?=[\p{L}\p{M}])([^A-Z]))+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?((?=[\p{L}\p{M}])([^a-z]))+((?=[\p{L}\p{M}])([^A-Z]))*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
}

// slowSplit applies patterns with a backtracking engine of full syntax.
func slowSplit(t *testing.T, patterns []string, text string) []string {
	words := []string{text}
	for _, p := range patterns {
		re := regexp2.MustCompile(p)
		var next []string
		for _, word := range words {
			at := 0
			m, err := re.FindStringMatch(word)
			for ; err == nil && m != nil; m, err = re.FindNextMatch(m) {
				from, n := m.ByteRange()
				if n == 0 {
					continue
				}
				if at < from {
					next = append(next, word[at:from])
				}
				next = append(next, word[from:from+n])
				at = from + n
			}
			if err != nil {
				t.Fatal(err)
			}
			if at < len(word) {
				next = append(next, word[at:])
			}
		}
		words = next
	}
	return words
}

func splitWords(t testing.TB, sp splitter, text string) []string {
	var words []string
	err := sp.split(text, true, func(w string) {
		if w != "" { // removed text
			words = append(words, w)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// trickyRunes holds letters of every case, digits of several scripts, marks,
// punctuation, symbols, white space of all kinds and unassigned code points.
var trickyRunes = []rune("abcstdmrvelSTLREVEMD''''ABÀéßǅʰªþΩя中あ한אש0123456789٣५Ⅷ½²\u0301\u0308\u20e3.,;:!?-_/\\()[]{}\"#$%&*+<=>@^`|~€∑√😀👍\U0001F3FD\u200d\ufe0f \u00a0\u2003\u3000\u0085\u1680\t\n\r\n \n  \x00\x01\x1b\u00ad\u200b\ue000\U000e0001\u0378")

func TestPreTokenizersAgainstPatterns(t *testing.T) {
	for name, patterns := range officialPatterns {
		t.Run(name, func(t *testing.T) {
			pre, ok := preTokenizers[name]
			if !ok {
				t.Fatal("not in the table")
			}
			r := rand.New(rand.NewPCG(9, 10))
			for i := range 400 {
				var b strings.Builder
				for range 1 + r.IntN(24) {
					c := trickyRunes[r.IntN(len(trickyRunes))]
					for n := 1 + r.IntN(1+i%4); n > 0; n-- {
						b.WriteRune(c)
					}
				}
				text := b.String()
				got, want := splitWords(t, pre.stages, text), slowSplit(t, patterns, text)
				if !slices.Equal(got, want) {
					t.Fatalf("%q\n got %q\nwant %q", text, got, want)
				}
			}
		})
	}
}

// TestPreTokenizersGolden compares with the words that Hugging Face's tokenizers 0.23.3 cuts by the models' own patterns.
func TestPreTokenizersGolden(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"deepseek-llm", "It's 1234567 HTMLParser2 he'LL 你好ab世界，ok", []string{"It", "'", "s", " ", "1234567", " HTMLParser", "2", " he", "'", "LL", " ", "你好", "ab", "世界", "，", "ok"}},
		{"deepseek-llm", "x\u3000\u3000“梅花”12345abc ٣٤٥٦\r\n\r\n  y ", []string{"x", "\u3000\u3000“", "梅花", "”", "12345", "abc", " ", "٣٤٥٦", "\r", "\n", "\r", "\n", " ", " y", " "}},
		{"deepseek-llm", "naïveÉTÉ's don'T e\u0301a 한국어ㅏ…—‘q’ a b  c//\n/d", []string{"na", "ï", "ve", "É", "T", "É", "'", "s", " don", "'", "T", " e", "\u0301", "a", " ", "한국어ㅏ…—", "‘", "q", "’", " a", " b", " ", " c", "//", "\n", "/", "d"}},
		{"kimi-k2", "It's 1234567 HTMLParser2 he'LL 你好ab世界，ok", []string{"It's", " ", "123", "456", "7", " HTMLParser", "2", " he'LL", " ", "你好", "ab", "世界", "，ok"}},
		{"kimi-k2", "x\u3000\u3000“梅花”12345abc ٣٤٥٦\r\n\r\n  y ", []string{"x", "\u3000", "\u3000", "“", "梅花", "”", "123", "45", "abc", " ", "٣٤٥", "٦", "\r\n\r\n", " ", " y", " "}},
		{"kimi-k2", "naïveÉTÉ's don'T e\u0301a 한국어ㅏ…—‘q’ a b  c//\n/d", []string{"naïve", "ÉTÉ's", " don'T", " e\u0301a", " 한국어ㅏ", "…—‘", "q", "’", " a", " b", " ", " c", "//\n", "/d"}},
		{"superbpe", "It's 1234567 HTMLParser2 he'LL 你好ab世界，ok", []string{"It's ", "1", "234", "567", " HTMLParser", "2", " he'LL 你好ab世界，ok"}},
		{"superbpe", "x\u3000\u3000“梅花”12345abc ٣٤٥٦\r\n\r\n  y ", []string{"x\u3000\u3000“梅花”", "12", "345", "abc ", "٣", "٤٥٦", "\r\n\r\n  y "}},
		{"superbpe", "naïveÉTÉ's don'T e\u0301a 한국어ㅏ…—‘q’ a b  c//\n/d", []string{"naïveÉTÉ's don'T e\u0301a 한국어ㅏ…—‘q’ a b  c//\n/d"}},
		{"tiny_aya", "It's 1234567 HTMLParser2 he'LL 你好ab世界，ok", []string{"It's", " ", "1", "234", "567", " HTMLParser", "2", " he'LL", " 你好ab世界", "，ok"}},
		{"tiny_aya", "x\u3000\u3000“梅花”12345abc ٣٤٥٦\r\n\r\n  y ", []string{"x", "\u3000", "\u3000", "“梅花", "”", "123", "45", "abc", " ", "٣", "٤٥٦", "\r\n\r\n", " ", " y", " "}},
		{"tiny_aya", "naïveÉTÉ's don'T e\u0301a 한국어ㅏ…—‘q’ a b  c//\n/d", []string{"naïve", "ÉTÉ's", " don'T", " e\u0301a", " 한국어ㅏ", "…—‘", "q", "’", " a", " b", " ", " c", "//\n/", "d"}},
		{"youtu", "It's 1234567 HTMLParser2 he'LL 你好ab世界，ok", []string{"It's", " ", "1", "2", "3", "4", "5", "6", "7", " HTMLParser", "2", " he'LL", " ", "你好", "ab", "世界", "，", "ok"}},
		{"youtu", "x\u3000\u3000“梅花”12345abc ٣٤٥٦\r\n\r\n  y ", []string{"x", "\u3000\u3000", "“", "梅花", "”", "1", "2", "3", "4", "5", "abc", " ", "٣", "٤", "٥", "٦", "\r\n\r\n", " ", " y", " "}},
		{"youtu", "naïveÉTÉ's don'T e\u0301a 한국어ㅏ…—‘q’ a b  c//\n/d", []string{"naïve", "ÉTÉ's", " don'T", " e\u0301a", " ", "한국어ㅏ", "…—‘", "q", "’", " a", " b", " ", " c", "//\n/", "d"}},
	} {
		if got := splitWords(t, preTokenizers[c.name].stages, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s of %q:\n got %q\nwant %q", c.name, c.text, got, c.want)
		}
	}
	for _, name := range []string{"glm5", "youtu"} {
		if !preTokenizers[name].ignoreMerges {
			t.Errorf("%s merges words that are tokens", name)
		}
	}
}

// TestPreTokenizersKeepText runs every name of the table over all kinds of text
// and checks that the words joined are the text.
func TestPreTokenizersKeepText(t *testing.T) {
	text := string(trickyRunes) + "Hello World's \xff\xfe 12345 你好，世界！ HTTPServer\r\n\r\n  x"
	for _, name := range knownPre() {
		words := splitWords(t, preTokenizers[name].stages, text)
		if strings.Join(words, "") != text {
			t.Errorf("%s: %q", name, words)
		}
		if slices.Contains(words, "") {
			t.Errorf("%s: an empty word", name)
		}
	}
}

func TestClassesAgainstUnicode(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		c := runeClasses()[r]
		if (c&classLetter != 0) != unicode.IsLetter(r) || (c&classNumber != 0) != unicode.IsNumber(r) || (c&classSpace != 0) != unicode.IsSpace(r) ||
			(c&classPunct != 0) != unicode.IsPunct(r) || (c&classMark != 0) != unicode.IsMark(r) || (c&classSymbol != 0) != unicode.IsSymbol(r) {
			t.Fatalf("%U: class %b", r, c)
		}
		if r < 0x80 && asciiClass[r] != c {
			t.Fatalf("%U: ASCII class %b, want %b", r, asciiClass[r], c)
		}
	}
}

func TestClosestPre(t *testing.T) {
	for name, want := range map[string]string{"qwen4": "qwen", "llama4-scout": "llama4", "smollm3": "smollm", "gpt-5": "gpt-2", "zzzzzzzzzzzz": "default", "deepseek-v4": "deepseek-v3"} {
		if got := closestPre(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	v := none(ModelBPE)
	v.Tokens, v.Pre = byteTokens(), "qwen4"
	tok := mustNew(t, v)
	if w := tok.Warnings(); len(w) != 1 || !strings.Contains(string(w[0]), `"qwen"`) {
		t.Errorf("warnings %q", w)
	}
}

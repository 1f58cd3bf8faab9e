package tokenizer

import (
	"slices"
	"strings"
)

// preTokenizer is what one name in a GGUF file's tokenizer.ggml.pre stands
// for: how the text is cut before byte-pair encoding, and the habits that
// llama.cpp ties to the name.
type preTokenizer struct {
	stages       splitter
	ignoreMerges bool // a word that is a token is never merged
	addBOS       bool // unless the file says otherwise
	// raw: symbols are characters, not bytes of GPT-2's alphabet, and spaces
	// are written U+2581.
	raw bool
}

func words(f stageFunc) splitter { return splitter{f} }

var (
	gpt2Split    = words(gpt2Word)
	digitsSplit  = splitter{eachOf(classNumber), stageFunc(gpt2Word)}
	llama3Split  = words(llama3Rules.word)
	qwen2Split   = words(qwen2Rules.word)
	gpt4oSplit   = words(caseRules{digits: 3, contractions: true}.word)
	linesSplit   = splitter{isolate(func(s string, i int) int { return skipLine(s, i) })}
	defaultSplit = splitter{falconPunct(""), stageFunc(gpt2Word), runsOf(classNumber), exactDigits(3)}
	falconSplit  = splitter{falconPunct("`"), stageFunc(gpt2Word), exactDigits(3)}
)

// falconPunct matches [\p{P}$+<=>^~|]+ with the further characters of more.
func falconPunct(more string) isolate {
	set := "$+<=>^~|" + more
	return func(s string, i int) int {
		for {
			c, n := classAt(s, i)
			if n == 0 || c&classPunct == 0 && !(n == 1 && strings.IndexByte(set, s[i]) >= 0) {
				return i
			}
			i += n
		}
	}
}

// skipLine matches [^\n]+|\n+.
func skipLine(s string, i int) int {
	newline := s[i] == '\n'
	for i < len(s) && (s[i] == '\n') == newline {
		i++
	}
	return i
}

// preTokenizers holds every name this package knows; the patterns are those of
// llama.cpp's llama-vocab.cpp and of the models' own tokenizer.json.
var preTokenizers = func() map[string]preTokenizer {
	table := map[string]preTokenizer{}
	add := func(p preTokenizer, names ...string) {
		for _, name := range names {
			table[name] = p
		}
	}
	add(preTokenizer{stages: defaultSplit}, "default")
	add(preTokenizer{stages: falconSplit}, "falcon")
	add(preTokenizer{stages: gpt2Split}, "gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "jina-v2-es",
		"jina-v2-de", "jina-v1-en", "jina-v2-code", "roberta-bpe", "gigachat", "a.x-4.0", "mellum",
		"modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4")
	add(preTokenizer{stages: digitsSplit}, "smollm", "starcoder", "refact", "command-r", "codeshell",
		"exaone", "minerva-7b", "mellum2")
	add(preTokenizer{stages: llama3Split, ignoreMerges: true, addBOS: true}, "llama-bpe", "llama3",
		"llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano")
	add(preTokenizer{stages: llama3Split, ignoreMerges: true}, "glm5")
	add(preTokenizer{stages: llama3Split}, "dbrx", "smaug-bpe", "glm4", "chatglm-bpe")
	add(preTokenizer{stages: qwen2Split}, "qwen", "qwen2", "qwen3", "stablelm2", "hunyuan", "solar-open", "megrez",
		"deepseek-r1-qwen", "kormo", "f2llmv2", "grok-2", "bailingmoe", "bailingmoe2", "llada-moe")
	add(preTokenizer{stages: words(qwen35Rules.word)}, "qwen35")
	add(preTokenizer{stages: words(turkishRules.word)}, "ufakzeka")
	add(preTokenizer{stages: splitter{upTo(classNumber, 3), stageFunc(anyDigitRules.word)}, ignoreMerges: true}, "minicpm5")
	add(preTokenizer{stages: splitter{linesSplit[0], stageFunc(qwen2Rules.word)}}, "laguna")
	add(preTokenizer{stages: gpt4oSplit}, "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2")
	add(preTokenizer{stages: words(caseRules{digits: 1}.word), ignoreMerges: true, addBOS: true}, "tekken")
	add(preTokenizer{stages: linesSplit, raw: true}, "gemma4", "granite-embed-multi-311m", "sarvam-moe")
	for _, p := range regexPreTokenizers() {
		add(preTokenizer{stages: p.stages, ignoreMerges: p.ignoreMerges, addBOS: p.addBOS}, p.names...)
	}
	return table
}()

// knownPre lists the names that Vocab.Pre may hold, sorted.
func knownPre() []string {
	names := make([]string, 0, len(preTokenizers))
	for name := range preTokenizers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// PreAddsBOS reports whether models with the named pre-tokenizer start with a
// BOS token when their file does not say (llama.cpp's rule).
func PreAddsBOS(name string) bool { return preTokenizers[name].addBOS }

// closestPre returns the known name nearest to an unknown one: the smallest
// edit distance less the length of the common prefix, alphabetically first on
// ties; "default" when more than half of the letters differ.
func closestPre(name string) string {
	best, bestCost := "default", len(name)/2+1
	for _, known := range knownPre() {
		common := 0
		for common < min(len(known), len(name)) && known[common] == name[common] {
			common++
		}
		if cost := editDistance(name, known) - common; cost < bestCost {
			best, bestCost = known, cost
		}
	}
	return best
}

// editDistance is Levenshtein's, on bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package ruler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	vtTemplate = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n%s\nQuestion: Find all variables that are assigned the value %s in the text above."
	// vtPrefix keeps RULER's spelling: it is part of what models are asked.
	vtPrefix  = " Answer: According to the chain(s) of variable assignment in the text above, %d variables are assgined the value %s, they are: "
	vtHops    = 4
	cweTop    = 10
	cweInput  = "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that appear most often.\n%s\nQuestion: What are the 10 most common words in the above list?"
	cwePrefix = " Answer: The top 10 words that appear most often in the list are:"
	fweInput  = "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared coded words. %s\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three most frequently appeared words in the above coded text?"
	fwePrefix = " Answer: According to the coded text above, the three most frequently appeared words are:"
)

// chain is a value and variables that pass it on, hidden among size noise sentences.
func chain(rng *rand.Rand, size, nameLen int) (context, value string, variables []string) {
	for len(variables) < vtHops+1 {
		if v := letters(rng, 'A', nameLen); !slices.Contains(variables, v) {
			variables = append(variables, v)
		}
	}
	value = fmt.Sprint(10000 + rng.IntN(89999))
	rows := make([]string, max(size, vtHops+2))
	for i := range rows {
		rows[i] = noise + "\n"
	}
	at := sample(rng, len(rows), vtHops+1)
	slices.Sort(at)
	for i, v := range variables {
		row := fmt.Sprintf("VAR %s = %s", v, value)
		if i > 0 {
			row = fmt.Sprintf("VAR %s = VAR %s ", v, variables[i-1])
		}
		rows = slices.Insert(rows, at[i]+i, row)
	}
	return strings.ReplaceAll(strings.Join(rows, " "), ". \n", ".\n"), value, variables
}

// tracking is RULER's vt: one chain of four hops, after a worked example with shorter names.
func tracking(rng *rand.Rand, size int) problem {
	context, value, variables := chain(rng, 5, 3)
	example := fmt.Sprintf(vtTemplate, context, value) + fmt.Sprintf(vtPrefix, vtHops+1, value) + strings.Join(variables, " ") + "\n\n\n"
	context, value, variables = chain(rng, size, 5)
	return problem{input: example + fmt.Sprintf(vtTemplate, context, value), prefix: fmt.Sprintf(vtPrefix, vtHops+1, value), answers: variables}
}

// wordList is a numbered list in which the first ten words drawn are repeated more often than the others.
func wordList(rng *rand.Rand, size, often, seldom int) (context string, common []string) {
	all := vocabulary().all
	var list []string
	for i, k := range sample(rng, len(all), max(size, cweTop)) {
		times := seldom
		if i < cweTop {
			common, times = append(common, all[k]), often
		}
		for range times {
			list = append(list, all[k])
		}
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return numbered(list), common
}

func numbered(list []string) string {
	var b strings.Builder
	for i, w := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d. %s", i+1, w)
	}
	return b.String()
}

// commonWords is RULER's cwe, with its smaller counts below 4,096 tokens.
func commonWords(rng *rand.Rand, size, length int) problem {
	exampleSize, exampleOften, exampleSeldom, often, seldom := 40, 10, 3, 30, 3
	if length < 4096 {
		exampleSize, exampleOften, exampleSeldom, often, seldom = 20, 3, 1, 6, 1
	}
	context, common := wordList(rng, exampleSize, exampleOften, exampleSeldom)
	example := fmt.Sprintf(cweInput, context) + cwePrefix + " " + numbered(common)
	context, common = wordList(rng, size, often, seldom)
	return problem{input: example + "\n" + fmt.Sprintf(cweInput, context), prefix: cwePrefix, answers: common}
}

// frequentWords is RULER's fwe: coded words with Zipf frequencies (alpha 2), the most frequent one being dots.
func frequentWords(rng *rand.Rand, size, length int) problem {
	vocab := make([]string, 0, max(5, length/50))
	for len(vocab) < cap(vocab) {
		if w := letters(rng, 'a', 6); !slices.Contains(vocab, w) {
			vocab = append(vocab, w)
		}
	}
	vocab[0] = "..."
	const zeta2 = math.Pi * math.Pi / 6
	var text []string
	for k, w := range vocab {
		for range int(float64(size) / float64((k+1)*(k+1)) / zeta2) {
			text = append(text, w)
		}
	}
	rng.Shuffle(len(text), func(i, j int) { text[i], text[j] = text[j], text[i] })
	return problem{input: fmt.Sprintf(fweInput, strings.Join(text, " ")), prefix: fwePrefix, answers: vocab[1:4]}
}

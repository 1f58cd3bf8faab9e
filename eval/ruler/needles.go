package ruler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// problem is one sample's text: what the user says, how the answer begins, and what it must contain.
type problem struct {
	input, prefix string
	answers       []string
}

// needleTask is a niah variant of RULER's synthetic.yaml.
type needleTask struct {
	haystack        string // repeat, essay or needle
	key, value      kind
	keys, values, q int
}

const noise = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."

func needle(t needleTask, key, value string) string {
	return fmt.Sprintf("One of the special magic %s for %s is: %s.", t.value, key, value)
}

// ask fills RULER's question about one or several needles.
func (t needleTask) ask(context, query string) (input, prefix string) {
	what := string(t.value)
	if t.q*t.values == 1 {
		what = strings.TrimSuffix(what, "s")
		return fmt.Sprintf("A special magic %s is hidden within the following text. Make sure to memorize it. I will quiz you about the %s afterwards.\n%s\nWhat is the special magic %s for %s mentioned in the provided text?", what, what, context, what, query),
			fmt.Sprintf(" The special magic %s for %s mentioned in the provided text is", what, query)
	}
	return fmt.Sprintf("Some special magic %s are hidden within the following text. Make sure to memorize it. I will quiz you about the %s afterwards.\n%s\nWhat are all the special magic %s for %s mentioned in the provided text?", what, what, context, what, query),
		fmt.Sprintf(" The special magic %s for %s mentioned in the provided text are", what, query)
}

// build makes a problem with a haystack of size words or sentences. at places the needles (percent); nil draws from
// RULER's 40 depths.
func (t needleTask) build(rng *rand.Rand, e *essays, size int, at []float64) problem {
	var keys, found []string
	var values [][]string
	for range max(t.keys, t.q) {
		key := draw(rng, t.key)
		var vs []string
		for range t.values {
			vs = append(vs, draw(rng, t.value))
			found = append(found, needle(t, key, vs[len(vs)-1]))
		}
		keys, values = append(keys, key), append(values, vs)
	}
	rng.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	var context string
	if t.haystack == "essay" {
		if at == nil {
			for _, i := range sample(rng, 40, len(found)) {
				at = append(at, math.Round(100*float64(i)/39))
			}
		}
		context = insert(e.text(size), found, at)
	} else {
		context = t.scatter(rng, size, found)
	}
	var queries []string
	var p problem
	for _, i := range sample(rng, len(keys), t.q) {
		queries = append(queries, keys[i])
		p.answers = append(p.answers, values[i]...)
	}
	query := queries[0]
	if n := len(queries); n > 1 {
		query = strings.Join(queries[:n-1], ", ") + ", and " + queries[n-1]
	}
	p.input, p.prefix = t.ask(context, query)
	return p
}

// scatter puts the needles between lines of noise or of other needles.
func (t needleTask) scatter(rng *rand.Rand, size int, found []string) string {
	size = max(size, len(found))
	rows := make([]string, size)
	for i := range rows {
		rows[i] = noise
		if t.haystack == "needle" {
			rows[i] = needle(t, draw(rng, t.key), draw(rng, t.value))
		}
	}
	at := sample(rng, size, len(found))
	slices.Sort(at)
	slices.Reverse(at)
	for i, n := range found {
		rows = slices.Insert(rows, at[i], n)
	}
	return strings.Join(rows, "\n")
}

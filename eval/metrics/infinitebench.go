package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"terrace/internal/nearest"
)

// infinite is NAME_TO_SCORE_GETTER of InfiniteBench's compute_scores.py: a prediction's score beside labels, which are the texts of the
// answer's JSON values; whole says of each whether it is a whole number there, number whether it is one at all.
var infinite = map[string]struct {
	name  string
	score func(pred string, l labels) float64
}{
	"passkey": {"first_int_match", firstNumberIs}, "number_string": {"first_int_match", firstNumberIs}, "kv_retrieval": {"in_words", oneOfWords},
	"code_run": {"last_int_match", lastWordIs}, "code_debug": {"option_match", debugOption}, "longdialogue_qa_eng": {"in_words", oneOfNames},
	"longbook_qa_eng":     {"qa_f1_score", func(p string, l labels) float64 { return l.best(p, qaF1Score) }},
	"longbook_qa_chn":     {"qa_f1_score_zh", func(p string, l labels) float64 { return l.best(p, charF1) }},
	"longbook_sum_eng":    {"rougeLsum", func(p string, l labels) float64 { return l.best(p, RougeLsum) }},
	"longbook_choice_eng": {"option_match", chosenOption}, "math_find": {"first_number_match", firstValueIs}, "math_calc": {"prefix_share", sharedPrefix},
}

// labels are an answer's values in order, texts as they are, numbers as they are written.
type labels []label

type label struct {
	text   string
	number bool
}

func (l labels) texts() (out []string) {
	for _, x := range l {
		out = append(out, x.text)
	}
	return out
}

func (l labels) best(pred string, score func(pred, answer string) float64) (best float64) {
	for _, x := range l {
		best = max(best, score(pred, x.text))
	}
	return best
}

// InfiniteBenchTasks lists the 12 tasks.
func InfiniteBenchTasks() []string { return slices.Sorted(maps.Keys(infinite)) }

// InfiniteBenchMetric is a name for a task's score.
func InfiniteBenchMetric(task string) string { return infinite[task].name }

// InfiniteBench is the score 0..1 of a prediction as InfiniteBench's compute_scores.py has it for every model but gpt4. answer is the
// row's (get_answer): a text or number, or a list of some; a list in a list is its first. Errors wrap [ErrTask] and [ErrRow].
func InfiniteBench(task, pred string, answer json.RawMessage) (float64, error) {
	f, ok := infinite[task]
	if !ok {
		return 0, fmt.Errorf("metrics: task %q%s, there are %s: %w", task, nearest.Hint(task, InfiniteBenchTasks()), strings.Join(InfiniteBenchTasks(), ", "), ErrTask)
	}
	l, err := labelsOf(answer)
	if err != nil || len(l) == 0 || (task == "code_debug" || task == "longbook_choice_eng") && len(l) != 2 {
		return 0, fmt.Errorf("metrics: %s: answer %.60s: %w", task, answer, ErrRow)
	}
	return f.score(pred, l), nil
}

func labelsOf(raw json.RawMessage) (labels, error) {
	var many []json.RawMessage
	if json.Unmarshal(raw, &many) != nil {
		many = []json.RawMessage{raw}
	}
	var out labels
	for _, one := range many {
		var text string
		var number json.Number
		var nested []json.RawMessage
		switch {
		case string(one) == "null":
			return nil, ErrRow
		case json.Unmarshal(one, &text) == nil:
			out = append(out, label{text: text})
		case json.Unmarshal(one, &number) == nil:
			out = append(out, label{number.String(), true})
		case json.Unmarshal(one, &nested) == nil && len(many) > 0 && len(out) == 0 && len(nested) > 0:
			return labelsOf(one)
		default:
			return nil, ErrRow
		}
	}
	return out, nil
}

func oneIf(right bool) float64 {
	if right {
		return 1
	}
	return 0
}

var asciiNumber = regexp.MustCompile(`[0-9]+`)

func firstNumberIs(pred string, l labels) float64 {
	return oneIf(!l[0].number && asciiNumber.FindString(pred) == l[0].text)
}

// blanked is a text with signs turned into blanks.
func blanked(s, signs string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(signs, r) {
			return ' '
		}
		return r
	}, s)
}

func oneOfWords(pred string, l labels) float64 {
	return oneIf(slices.Contains(fields(blanked(pred, "\n:\"'.,?!{}")), l[0].text))
}

func oneOfNames(pred string, l labels) float64 {
	for _, w := range fields(blanked(pred, "\n:\"'.,?!{}")) {
		if strings.ToUpper(w) == l[0].text {
			return 1
		}
	}
	return 0
}

// wholeOf is Python's int of a text.
var wholeOf = regexp.MustCompile(`^[+-]?[0-9]+(_[0-9]+)*$`)

func lastWordIs(pred string, l labels) float64 {
	words := fields(blanked(strings.TrimFunc(pred, isSpace), "\n.`'\":"))
	if len(words) == 0 || !wholeOf.MatchString(words[len(words)-1]) || !l[0].number {
		return 0
	}
	got, _ := new(big.Int).SetString(strings.ReplaceAll(words[len(words)-1], "_", ""), 10)
	want, ok := new(big.Float).SetString(l[0].text)
	return oneIf(ok && got != nil && new(big.Float).SetInt(got).Cmp(want) == 0)
}

// afterPrefix is what stands behind the first of the prefixes that is there, in their order, and the sign after it.
func afterPrefix(pred string, prefixes ...string) (rest string, found bool) {
	for _, prefix := range prefixes {
		if at := strings.Index(pred, prefix); at >= 0 {
			rest = pred[at+len(prefix):]
			_, n := utf8.DecodeRuneInString(rest)
			return rest[n:], true
		}
	}
	return "", false
}

func singleBlanks(s string) string {
	for strings.Contains(s, "  ") {
		s = strings.ReplaceAll(s, "  ", " ")
	}
	return s
}

func debugOption(pred string, l labels) float64 {
	pred = strings.TrimFunc(pred, isSpace)
	name, letter := l[0].text, l[1].text
	if signs := []rune(pred); len(signs) >= 2 && (string(signs[:2]) == letter+"." || string(signs[:2]) == letter+":") {
		return 1
	}
	pred = blanked(pred, "\n`'\"-*")
	pred = singleBlanks(strings.ReplaceAll(strings.ReplaceAll(pred, "Option", " "), "option", " "))
	rest, found := afterPrefix(pred, "answer is:", "is:", "answer:", "correct option is:")
	return oneIf(found && rest != "" && (strings.HasPrefix(rest, letter) || strings.HasPrefix(rest, name)))
}

func chosenOption(pred string, l labels) float64 {
	pred = strings.TrimFunc(pred, isSpace)
	if pred == "" {
		return 0
	}
	if strings.IndexByte("ABCD", pred[0]) >= 0 {
		return oneIf(slices.Contains(l.texts(), pred[:1]))
	}
	if slices.Contains(l.texts(), pred) {
		return 1
	}
	pred = singleBlanks(blanked(pred, "\n\"'.,?!{}"))
	if rest, found := afterPrefix(pred, "answer is:", "answer:", "answer is", "option is"); found {
		return oneIf(rest != "" && slices.ContainsFunc(l.texts(), func(s string) bool { return strings.HasPrefix(rest, s) }))
	}
	for _, w := range fields(pred) {
		if strings.Contains("ABCD", w) {
			return oneIf(slices.Contains(l.texts(), w))
		}
	}
	return 0
}

var firstValue = regexp.MustCompile(`\p{Nd}+\.\p{Nd}+|\p{Nd}+`)

// firstValueIs is 0 for a number with a fraction where a whole one is asked, at which the official code raises.
func firstValueIs(pred string, l labels) float64 {
	text := firstValue.FindString(pred)
	if text == "" || !l[0].number || !strings.ContainsAny(l[0].text, ".eE") && strings.Contains(text, ".") {
		return 0
	}
	got, ok := new(big.Float).SetString(text)
	want, fine := new(big.Float).SetString(l[0].text)
	return oneIf(ok && fine && got.Cmp(want) == 0)
}

// sharedPrefix is the share of the label's numbers before the first that differs.
func sharedPrefix(pred string, l labels) float64 {
	n := 0
	for i, text := range asciiNumber.FindAllString(pred, len(l)) {
		got, _ := new(big.Int).SetString(text, 10)
		want, ok := new(big.Int).SetString(l[i].text, 10)
		if !ok || got.Cmp(want) != 0 {
			break
		}
		n++
	}
	return float64(n) / float64(len(l))
}

// charF1 is qa_f1_score_zh: F1 over the signs of the normalised texts.
func charF1(pred, answer string) float64 {
	signs := func(s string) []string {
		return strings.Split(strings.Join(fields(without(lower(s), asciiPunctuation+zhPunctuation)), ""), "")
	}
	return f1(signs(pred), signs(answer))
}

package choice

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"terrace/eval"
)

// question is one item: the prompt, its possible continuations (without the blank before them), and the right one.
type question struct {
	prompt  string
	choices []string
	gold    int
	head    string // before the examples
	given   string // of the prompt: what stands before the question itself
	group   string // examples are of the same one
}

// task is one dataset.
type task struct {
	name   string
	splits []string // scored, in order of preference
	parse  func(r record) (question, error)
	firsts string // examples are the first of this split; "" = drawn from train
	// generates says how the answer is generated and scored; nil = the likeliest choice is.
	generates *generated
}

var tasks = []task{
	{"openbookqa", []string{"test", "validation", "dev"}, openBookQA, "", nil},
	{"piqa", []string{"validation", "valid", "dev", "test"}, piqa, "", nil},
	{"copa", []string{"validation", "val", "dev", "test"}, copa, "", nil},
	{"rte", []string{"validation", "val", "dev", "test"}, rte, "", nil},
	{"arc_easy", []string{"test", "validation", "dev"}, arc, "", nil},
	{"arc_challenge", []string{"test", "validation", "dev"}, arc, "", nil},
	{"hellaswag", []string{"validation", "val", "dev"}, hellaSwag, "", nil},
	{"mmlu", []string{"test", "validation", "val"}, mmlu, "dev", nil},
	{"gsm8k", []string{"test"}, gsm8k, "", &gsm8kAnswers},
}

// TaskNames lists the datasets.
func TaskNames() []string {
	var out []string
	for _, t := range tasks {
		out = append(out, t.name)
	}
	return out
}

// openBookQA reads both the published form (question.stem, choices as objects) and Hugging Face's.
func openBookQA(r record) (question, error) { return labelled(r, "question_stem") }

// arc is labelled as OpenBookQA is.
func arc(r record) (question, error) {
	q, err := labelled(r, "question")
	q.prompt = "Question: " + q.prompt + "\nAnswer:"
	return q, err
}

// labelled reads choices that have labels, of which the answer names one; stem is the field of Hugging Face's form.
func labelled(r record, stem string) (question, error) {
	var q question
	var labels []string
	var err error
	if inner, ok := r["question"].(record); ok {
		if q.prompt, err = text(inner, "stem"); err != nil {
			return q, err
		}
		list, _ := inner["choices"].([]any)
		for _, c := range list {
			c, _ := c.(record)
			t, err := text(c, "text")
			if err != nil {
				return q, err
			}
			label, err := text(c, "label")
			if err != nil {
				return q, err
			}
			q.choices, labels = append(q.choices, t), append(labels, label)
		}
	} else {
		if q.prompt, err = text(r, stem); err != nil {
			return q, err
		}
		c, _ := r["choices"].(record)
		q.choices, labels = texts(c["text"]), texts(c["label"])
	}
	key, err := text(r, "answerKey")
	if err != nil {
		return q, err
	}
	for i, l := range labels {
		if l == strings.TrimSpace(key) && i < len(q.choices) {
			q.gold = i
			return q, nil
		}
	}
	return q, fmt.Errorf("answerKey %q is none of %v: %w", key, labels, eval.ErrData)
}

// texts is a list of strings, plain or as Parquet's list type nests them.
func texts(v any) []string {
	switch v := v.(type) {
	case []any:
		var out []string
		for _, x := range v {
			out = append(out, texts(x)...)
		}
		return out
	case []string:
		return v
	case record:
		for _, name := range []string{"list", "element", "item", "array"} {
			if inner, ok := v[name]; ok {
				return texts(inner)
			}
		}
	case []record:
		var out []string
		for _, x := range v {
			out = append(out, texts(x)...)
		}
		return out
	case string:
		return []string{v}
	case []byte:
		return []string{string(v)}
	}
	return nil
}

func piqa(r record) (question, error) {
	goal, err := text(r, "goal")
	if err != nil {
		return question{}, err
	}
	a, err := text(r, "sol1")
	if err != nil {
		return question{}, err
	}
	b, err := text(r, "sol2")
	if err != nil {
		return question{}, err
	}
	gold, err := number(r, "label")
	return question{prompt: "Question: " + goal + "\nAnswer:", choices: []string{a, b}, gold: gold}, err
}

// brackets are what WikiHow's articles left in HellaSwag.
var brackets = regexp.MustCompile(`\[.*?\]`)

// hellaSwag is cleaned as the harness does it.
func hellaSwag(r record) (question, error) {
	var parts [3]string
	for i, name := range []string{"activity_label", "ctx_a", "ctx_b"} {
		part, ok := r[name].(string) // ctx_b may be empty
		if !ok {
			return question{}, fmt.Errorf("field %q is no text: %w", name, eval.ErrData)
		}
		parts[i] = part
	}
	clean := func(s string) string {
		s = strings.ReplaceAll(strings.TrimSpace(s), " [title]", ". ")
		return strings.ReplaceAll(brackets.ReplaceAllString(s, ""), "  ", " ")
	}
	first, n := utf8.DecodeRuneInString(parts[2])
	if n > 0 { // the first letter large, the others small
		parts[2] = string(unicode.ToTitle(first)) + strings.ToLower(parts[2][n:])
	}
	q := question{prompt: clean(parts[0] + ": " + parts[1] + " " + parts[2])}
	for _, ending := range texts(r["endings"]) {
		q.choices = append(q.choices, clean(ending))
	}
	var err error
	q.gold, err = number(r, "label", "0", "1", "2", "3")
	return q, err
}

// mmlu asks for the letter of one of four answers; examples are of the same subject, which a line above them names.
func mmlu(r record) (question, error) {
	asked, err := text(r, "question")
	if err != nil {
		return question{}, err
	}
	q := question{prompt: strings.TrimSpace(asked)}
	answers := texts(r["choices"])
	if len(answers) != 4 {
		return q, fmt.Errorf("%d choices, want 4: %w", len(answers), eval.ErrData)
	}
	for i, answer := range answers {
		letter := string(rune('A' + i))
		q.prompt += "\n" + letter + ". " + answer
		q.choices = append(q.choices, letter)
	}
	q.prompt += "\nAnswer:"
	if q.group, err = text(r, "subject"); err != nil {
		return q, err
	}
	q.head = "The following are multiple choice questions (with answers) about " + strings.ReplaceAll(q.group, "_", " ") + ".\n\n"
	q.gold, err = number(r, "answer", "A", "B", "C", "D")
	return q, err
}

// copa drops the premise's full stop and goes on with because or therefore.
func copa(r record) (question, error) {
	premise, err := text(r, "premise")
	if err != nil {
		return question{}, err
	}
	kind, err := text(r, "question")
	if err != nil {
		return question{}, err
	}
	connector := map[string]string{"cause": "because", "effect": "therefore"}[kind]
	if connector == "" {
		return question{}, fmt.Errorf("question %q, want cause or effect: %w", kind, eval.ErrData)
	}
	premise = strings.TrimSpace(premise)
	_, n := utf8.DecodeLastRuneInString(premise)
	q := question{prompt: premise[:len(premise)-n] + " " + connector}
	for _, name := range []string{"choice1", "choice2"} {
		c, err := text(r, name)
		if err != nil {
			return q, err
		}
		first, n := utf8.DecodeRuneInString(c)
		q.choices = append(q.choices, string(unicode.ToLower(first))+c[n:])
	}
	q.gold, err = number(r, "label")
	return q, err
}

// rte reads GLUE's and SuperGLUE's field names; label 0 or "entailment" is True.
func rte(r record) (question, error) {
	premise, err := text(r, "sentence1", "premise")
	if err != nil {
		return question{}, err
	}
	hypothesis, err := text(r, "sentence2", "hypothesis")
	if err != nil {
		return question{}, err
	}
	gold, err := number(r, "label", "entailment", "not_entailment")
	return question{prompt: premise + "\nQuestion: " + hypothesis + " True or False?\nAnswer:", choices: []string{"True", "False"}, gold: gold}, err
}

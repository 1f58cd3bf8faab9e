package choice

import (
	"fmt"
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
}

// task is one dataset.
type task struct {
	name   string
	splits []string // scored, in order of preference
	parse  func(r record) (question, error)
}

var tasks = []task{
	{"openbookqa", []string{"test", "validation", "dev"}, openBookQA},
	{"piqa", []string{"validation", "valid", "dev", "test"}, piqa},
	{"copa", []string{"validation", "val", "dev", "test"}, copa},
	{"rte", []string{"validation", "val", "dev", "test"}, rte},
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
func openBookQA(r record) (question, error) {
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
		if q.prompt, err = text(r, "question_stem"); err != nil {
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

package published

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"terrace/eval"
	"terrace/eval/metrics"
)

// infiniteBench is InfiniteBench (Zhang et al. 2024, arXiv 2402.13718): 12 tasks of 100,000 tokens and more. Prompts are those that its
// authors ask open models with (yarn_mistral_templates), lengths of answers theirs, scores compute_scores.py's.
var infiniteBench = benchmark{name: "infinitebench", tasks: []task{
	infinite("passkey", "retrieval", 6, "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you about the important information.\n\n{context}\n\n{input}\n\nThe pass key is"),
	infinite("number_string", "retrieval", 12, "There is an important info hidden inside a lot of irrelevant text. Find it. I will quiz you about the important information there.\n\n{context}\n\n{input}\n\nThe sequence of digits is"),
	infinite("kv_retrieval", "retrieval", 50, "Extract the value corresponding to the specified key in the JSON object below.\n\n{context}\n\n{input}"),
	infinite("longbook_sum_eng", "books", 1200, "Summarize the book below.\n\n{context}\n\nSummary:"),
	infinite("longbook_choice_eng", "books", 40, "Read the book and answer the question.\n\n{context}\n\nQuestion: {input}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n\nThe letter of the correct answer is"),
	infinite("longbook_qa_eng", "books", 40, "Read the book and answer the question. Be very concise in your answer.\n\n{context}\n\nQuestion: {input}\nAnswer:"),
	infinite("longbook_qa_chn", "books", 40, "阅读以下书籍然后回答问题。\n\n{context}\n\n问题：{input}\n答案："),
	infinite("longdialogue_qa_eng", "dialogue", 40, "Below is a dialogue script where one random occurrence of a character name is replaced with \"$$MASK$$\", and you should try to guess who that character is.\n\n{context}\n\nThe name that has been replaced with $$MASK$$ is likely"),
	infinite("math_find", "mathematics", 3, "{prefix}\n\n{context}\n\n{input}"),
	infinite("math_calc", "mathematics", 30000, "Let us calculate the intermediate values of an expression.\n\nExpression: 1 + 3 + 4\nValues: [1, 4, 8]\n\nExpression: 8 - 3 + 2 - 4\nValues: [8, 5, 7, 3]\n\nExpression: {context}\nValues:"),
	infinite("code_run", "code", 5, "There is a function called {func} in the following Python code.\n\n{context}\n\nPlease compute the exact value of {func_call}. The value of {func_call} is"),
	infinite("code_debug", "code", 5, "Following is a Python code where exactly one of the functions/methods has a deliberate error that makes it crash.\n\n{context}\n\nOptions:\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n\nThe correct option is:"),
}}

var (
	functionCall = regexp.MustCompile(`func_[0-9]+\(-?[0-9]+\)`)
	numberAsked  = regexp.MustCompile(`The .+ of`)
)

func infinite(name, group string, tokens int, template string) task {
	return task{name: name, group: group, metric: metrics.InfiniteBenchMetric(name), files: []string{name}, tokens: tokens, questions: func(r record) ([]question, error) {
		context, err := r.any("context", "content")
		if err != nil {
			return nil, err
		}
		values := []string{"context", context}
		var input string
		if strings.Contains(template, "{input}") || name == "code_run" {
			if input, err = r.text("input"); err != nil {
				return nil, err
			}
		}
		values = append(values, "input", input)
		answer := r["answer"]
		switch name {
		case "code_run":
			call := functionCall.FindString(input)
			if call == "" {
				return nil, fmt.Errorf("input %.60q calls no function: %w", input, eval.ErrData)
			}
			function, _, _ := strings.Cut(call, "(")
			values = append(values, "func", function, "func_call", call)
		case "math_find":
			asked := numberAsked.FindString(input)
			if asked == "" {
				return nil, fmt.Errorf("input %.60q asks for no number: %w", input, eval.ErrData)
			}
			values = append(values, "prefix", "What is "+strings.TrimSuffix(strings.ToLower(asked), " of")+" in the following list?")
		case "code_debug", "longbook_choice_eng":
			options, err := r.texts("options")
			if err != nil || len(options) != 4 {
				return nil, fmt.Errorf("options are no list of four texts: %w", eval.ErrData)
			}
			values = append(values, "A", options[0], "B", options[1], "C", options[2], "D", options[3])
			if answer, err = optionOf(answer, options); err != nil {
				return nil, err
			}
		}
		if _, err := metrics.InfiniteBench(name, "", answer); err != nil {
			return nil, fmt.Errorf("%w: %w", eval.ErrData, err)
		}
		return []question{{prompt: filled(template, values...), row: map[string]any{"answer": answer}, score: func(pred string) (float64, map[string]float64, error) {
			score, err := metrics.InfiniteBench(name, pred, answer)
			return score, nil, err
		}}}, nil
	}}
}

// optionOf is get_answer: an option's text and its letter.
func optionOf(raw json.RawMessage, options []string) (json.RawMessage, error) {
	var one string
	var many []string
	if json.Unmarshal(raw, &one) == nil {
		many = []string{one}
	} else if err := json.Unmarshal(raw, &many); err != nil {
		return nil, fmt.Errorf("answer %.60s is no option: %w", raw, eval.ErrData)
	}
	if len(many) == 2 && len(many[1]) == 1 && strings.Contains("ABCD", many[1]) {
		return raw, nil
	}
	if len(many) == 1 {
		if at := slices.Index(options, many[0]); at >= 0 {
			return json.Marshal([]string{many[0], "ABCD"[at : at+1]})
		}
	}
	return nil, fmt.Errorf("answer %.60s is no option: %w", raw, eval.ErrData)
}

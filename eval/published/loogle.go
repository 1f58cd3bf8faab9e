package published

import (
	"fmt"

	"terrace/eval"
	"terrace/eval/metrics"
)

// looGLE is LooGLE (Li et al. 2023, arXiv 2311.04939). Prompts, cuts and lengths of answers are those of its repository; it decodes with a
// repetition penalty of 2, this greedily without. Scores of texts are its automatic ones but METEOR and BERTScore, which want WordNet and a
// model: the recall of ROUGE-L, others beside it. Clozes score the share of masks that are named exactly, over all masks.
var looGLE = benchmark{name: "loogle", tasks: []task{
	{name: "shortdep_qa", metric: "rougeL_recall", group: "short dependency", files: []string{"shortdep_qa"}, tokens: 300, apart: true, questions: loogleAnswers},
	{name: "longdep_qa", metric: "rougeL_recall", group: "long dependency", files: []string{"longdep_qa"}, tokens: 500, apart: true, questions: loogleAnswers},
	{name: "longdep_summarization", metric: "rougeL_recall", group: "long dependency", files: []string{"longdep_summarization", "summarization"}, tokens: 500, apart: true, questions: loogleSummary},
	{name: "shortdep_cloze", metric: "exact_match", group: "short dependency", files: []string{"shortdep_cloze"}, tokens: 50, apart: true, questions: loogleClozes},
}}

const (
	looglePrompt  = "Please answer the question based on the long texts below. \n{input}\nQuestion: {Q}\nAnswer: "
	loogleSummed  = "Please generate a summary of the below paper. \n{input}\n Summarization: "
	loogleClozing = "Please fill in the clozes based on the given long texts below. Each of the placeholder '<mask-n>' in the question could be an entity of Person, Location or Organiocation. The same masks represent the same entity. Output a json format answer, for example: {'<mask-0>': 'Bob', '<mask-1>': 'Gorrosion Magazine','<mask-2>': 'Bethel Horizon'}\n{input}\n Question: {Q} What are the masked entities? \nAnswer:"
)

// pairs are a row's text and its questions, which Python has printed into a text.
func pairs(r record) (input string, out []map[string]any, err error) {
	if input, err = r.text("input"); err != nil {
		return "", nil, err
	}
	text, err := r.text("qa_pairs")
	if err != nil {
		return "", nil, err
	}
	value, err := metrics.PythonLiteral(text)
	if err != nil {
		return "", nil, fmt.Errorf("qa_pairs: %w: %w", eval.ErrData, err)
	}
	list, _ := value.([]any)
	for _, one := range list {
		pair, ok := one.(map[string]any)
		if _, asked := pair["Q"].(string); !ok || !asked {
			return "", nil, fmt.Errorf("qa_pairs is no list of dictionaries with Q: %w", eval.ErrData)
		}
		out = append(out, pair)
	}
	if len(out) == 0 {
		return "", nil, fmt.Errorf("qa_pairs has no questions: %w", eval.ErrData)
	}
	return input, out, nil
}

func loogleText(prompt, answer string, labels map[string]string) question {
	return question{prompt: prompt, labels: labels, row: map[string]string{"answer": answer}, score: func(pred string) (float64, map[string]float64, error) {
		values := metrics.LooGLEText(pred, answer)
		return values["rougeL"], values, nil
	}}
}

func loogleAnswers(r record) (out []question, err error) {
	input, all, err := pairs(r)
	if err != nil {
		return nil, err
	}
	for _, pair := range all {
		answer, ok := pair["A"].(string)
		if !ok {
			return nil, fmt.Errorf("an answer of qa_pairs is no text: %w", eval.ErrData)
		}
		var labels map[string]string
		if kind, ok := pair["type"].(string); ok {
			labels = map[string]string{"type": kind}
		}
		out = append(out, loogleText(filled(looglePrompt, "input", input, "Q", pair["Q"].(string)), answer, labels))
	}
	return out, nil
}

func loogleSummary(r record) ([]question, error) {
	input, err := r.text("input")
	if err != nil {
		return nil, err
	}
	answer, err := r.text("output")
	if err != nil {
		return nil, err
	}
	return []question{loogleText(filled(loogleSummed, "input", input), answer, nil)}, nil
}

func loogleClozes(r record) (out []question, err error) {
	input, all, err := pairs(r)
	if err != nil {
		return nil, err
	}
	for _, pair := range all {
		said, _ := pair["A"].(map[string]any)
		answer := map[string]string{}
		for mask, name := range said {
			text, ok := name.(string)
			if !ok {
				return nil, fmt.Errorf("mask %s of qa_pairs is no text: %w", mask, eval.ErrData)
			}
			answer[mask] = text
		}
		if len(answer) == 0 {
			return nil, fmt.Errorf("an answer of qa_pairs names no masks: %w", eval.ErrData)
		}
		out = append(out, question{prompt: filled(loogleClozing, "input", input, "Q", pair["Q"].(string)), row: map[string]any{"answer": answer}, weight: float64(len(answer)), score: func(pred string) (float64, map[string]float64, error) {
			exact, partial := metrics.LooGLECloze(pred, answer)
			return exact, map[string]float64{"partial_match": partial}, nil
		}})
	}
	return out, nil
}

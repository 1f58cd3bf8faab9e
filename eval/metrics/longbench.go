package metrics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"terrace/internal/nearest"
)

// Row is one prediction to score, with LongBench's field names.
type Row struct {
	Pred    string   `json:"pred"`
	Answers []string `json:"answers"`
	Classes []string `json:"all_classes"`
	Length  int      `json:"length"` // words or characters of the sample, for LongBench-E's buckets
}

// metric scores a prediction against one answer.
type metric struct {
	name  string
	score func(pred, answer string, classes []string) (float64, error)
}

func plain(f func(pred, answer string) float64) func(string, string, []string) (float64, error) {
	return func(p, a string, _ []string) (float64, error) { return f(p, a), nil }
}

func checked(f func(pred, answer string) (float64, error)) func(string, string, []string) (float64, error) {
	return func(p, a string, _ []string) (float64, error) { return f(p, a) }
}

var (
	qaF1    = metric{"qa_f1_score", plain(qaF1Score)}
	qaF1Zh  = metric{"qa_f1_zh_score", plain(qaF1ZhScore)}
	rouge   = metric{"rouge_score", plain(rougeScore)}
	rougeZh = metric{"rouge_zh_score", plain(rougeZhScore)}
	codeSim = metric{"code_sim_score", plain(codeSimScore)}
	count   = metric{"count_score", plain(countScore)}
	retr    = metric{"retrieval_score", checked(retrievalScore)}
	retrZh  = metric{"retrieval_zh_score", checked(retrievalZhScore)}
	classes = metric{"classification_score", func(p, a string, classes []string) (float64, error) {
		if classes == nil {
			return 0, fmt.Errorf("metrics: all_classes is missing: %w", ErrRow)
		}
		return classificationScore(p, a, classes), nil
	}}
)

// longbench is dataset2metric of eval.py.
var longbench = map[string]metric{
	"narrativeqa": qaF1, "qasper": qaF1, "multifieldqa_en": qaF1, "multifieldqa_zh": qaF1Zh,
	"hotpotqa": qaF1, "2wikimqa": qaF1, "musique": qaF1, "dureader": rougeZh,
	"gov_report": rouge, "qmsum": rouge, "multi_news": rouge, "vcsum": rougeZh,
	"trec": classes, "triviaqa": qaF1, "samsum": rouge, "lsht": classes,
	"passage_retrieval_en": retr, "passage_count": count, "passage_retrieval_zh": retrZh,
	"lcc": codeSim, "repobench-p": codeSim,
}

// groups are the six kinds of tasks of LongBench's tables.
var groups = map[string]string{
	"narrativeqa": "single-document QA", "qasper": "single-document QA", "multifieldqa_en": "single-document QA", "multifieldqa_zh": "single-document QA",
	"hotpotqa": "multi-document QA", "2wikimqa": "multi-document QA", "musique": "multi-document QA", "dureader": "multi-document QA",
	"gov_report": "summarization", "qmsum": "summarization", "multi_news": "summarization", "vcsum": "summarization",
	"trec": "few-shot", "triviaqa": "few-shot", "samsum": "few-shot", "lsht": "few-shot",
	"passage_retrieval_en": "synthetic", "passage_count": "synthetic", "passage_retrieval_zh": "synthetic",
	"lcc": "code", "repobench-p": "code",
}

// LongBenchGroup is the kind of a task in LongBench's tables; "" for one that is not LongBench's.
func LongBenchGroup(task string) string { return groups[baseTask(task)] }

// firstLineOnly are the tasks of which eval.py scores only the first line.
var firstLineOnly = map[string]bool{"trec": true, "triviaqa": true, "samsum": true, "lsht": true}

// LongBenchTasks lists the 21 tasks.
func LongBenchTasks() []string { return slices.Sorted(maps.Keys(longbench)) }

// baseTask maps LongBench-E's names (qasper_e) to the task whose metric they share.
func baseTask(task string) string {
	if _, ok := longbench[task]; ok {
		return task
	}
	return strings.TrimSuffix(task, "_e")
}

// MetricName is the official name of a task's metric.
func MetricName(task string) (string, error) {
	m, ok := longbench[baseTask(task)]
	if !ok {
		return "", fmt.Errorf("metrics: task %q%s, there are %s: %w", task, nearest.Hint(task, LongBenchTasks()), strings.Join(LongBenchTasks(), ", "), ErrTask)
	}
	return m.name, nil
}

// LongBench is the score 0..1 of one row: the best over its answers, after eval.py's first-line rule.
func LongBench(task string, r Row) (float64, error) {
	if _, err := MetricName(task); err != nil {
		return 0, err
	}
	task = baseTask(task)
	pred := r.Pred
	if firstLineOnly[task] {
		pred, _, _ = strings.Cut(strings.TrimLeft(pred, "\n"), "\n")
	}
	best := 0.0
	for _, answer := range r.Answers {
		s, err := longbench[task].score(pred, answer, r.Classes)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", task, err)
		}
		best = max(best, s)
	}
	return best, nil
}

// Percent is round(100 * mean, 2), as eval.py reports a task.
func Percent(scores []float64) float64 {
	total := 0.0
	for _, s := range scores {
		total += s
	}
	return round2(100 * total / float64(len(scores)))
}

// Bucket is LongBench-E's length bucket of a sample.
func Bucket(length int) string {
	switch {
	case length < 4000:
		return "0-4k"
	case length < 8000:
		return "4-8k"
	}
	return "8k+"
}

// Buckets are the names of LongBench-E's buckets, in order.
var Buckets = []string{"0-4k", "4-8k", "8k+"}

// round2 is Python's round(x, 2): the decimal nearest to the exact binary value, ties to even.
func round2(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	out, err := strconv.ParseFloat(strconv.FormatFloat(x, 'f', 2, 64), 64)
	if err != nil {
		return x // a value too large for two decimals to matter
	}
	return out
}

package metrics

import (
	"math"
	"slices"
	"strings"
)

// LooGLEText are the scores of an answer in words that LooGLE's automatic_metrics.py computes without a model or a dictionary: BLEU-1 and
// BLEU-4 (the latter of 4-grams alone, as its weights say), and the recall of ROUGE-1, -2 and -L of the package rouge. 0 where that raises
// on an answer of dots alone. An empty answer is "None", as there.
func LooGLEText(pred, answer string) map[string]float64 {
	if pred == "" {
		pred = "None"
	}
	words := func(s string) []string { return fields(strings.ReplaceAll(s, "\n", " ")) }
	hyp, ref := words(pred), words(answer)
	out := map[string]float64{"bleu1": bleu(hyp, ref, 1), "bleu4": bleu(hyp, ref, 4)}
	out["rouge1"], out["rouge2"], out["rougeL"] = rougeRecalls(pred, answer)
	return out
}

// bleu is nltk's sentence_bleu of n-grams of one length: 0 where not even one word is shared.
func bleu(hyp, ref []string, n int) float64 {
	if len(hyp) == 0 {
		return 0
	}
	matches := func(n int) (same, all int) {
		left := map[string]int{}
		for i := range len(ref) - n + 1 {
			left[strings.Join(ref[i:i+n], "\x00")]++
		}
		for i := range len(hyp) - n + 1 {
			all++
			if gram := strings.Join(hyp[i:i+n], "\x00"); left[gram] > 0 {
				left[gram]--
				same++
			}
		}
		return same, max(all, 1)
	}
	if same, _ := matches(1); same == 0 {
		return 0
	}
	same, all := matches(n)
	brevity := 1.0
	if len(hyp) <= len(ref) {
		brevity = math.Exp(1 - float64(len(ref))/float64(len(hyp)))
	}
	return brevity * float64(same) / float64(all)
}

// rougeRecalls are r of rouge-1, rouge-2 and rouge-l, over sets.
func rougeRecalls(pred, answer string) (one, two, longest float64) {
	hyp, ref := sentences(pred), sentences(answer)
	if len(hyp) == 0 || len(ref) == 0 {
		return 0, 0, 0
	}
	grams := func(of [][]string, n int) map[string]bool {
		words, set := slices.Concat(of...), map[string]bool{}
		for i := range len(words) - n + 1 {
			set[strings.Join(words[i:i+n], "\x00")] = true
		}
		return set
	}
	recall := func(n int) float64 {
		in, want := grams(hyp, n), grams(ref, n)
		same := 0
		for g := range want {
			if in[g] {
				same++
			}
		}
		return float64(same) / float64(max(len(want), 1))
	}
	union := map[string]bool{}
	for _, r := range ref {
		for _, h := range hyp {
			addCommon(union, r, h, math.MaxInt)
		}
	}
	return recall(1), recall(2), float64(len(union)) / float64(distinct(ref))
}

// LooGLECloze are the shares of masks that a reply, a Python dictionary, names exactly, and in at least one word (get_exact_match,
// get_partial_match); 0 of a reply that is no dictionary.
func LooGLECloze(pred string, answer map[string]string) (exact, partial float64) {
	value, err := PythonLiteral(pred)
	said, ok := value.(map[string]any)
	if err != nil || !ok || len(answer) == 0 {
		return 0, 0
	}
	for mask, want := range answer {
		got, ok := said[mask].(string)
		if !ok {
			continue
		}
		if got == want {
			exact++
		}
		words := fields(want)
		if slices.ContainsFunc(fields(got), func(w string) bool { return slices.Contains(words, w) }) {
			partial++
		}
	}
	return exact / float64(len(answer)), partial / float64(len(answer))
}

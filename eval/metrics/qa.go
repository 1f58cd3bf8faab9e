package metrics

import (
	"strings"

	"terrace/eval/jieba"
)

// zhPunctuation is what normalize_zh_answer drops besides ASCII punctuation.
const zhPunctuation = "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."

// normalizeAnswer lowers text and drops ASCII punctuation, articles and extra white space (SQuAD's normalisation).
func normalizeAnswer(s string) string {
	return strings.Join(fields(replaceArticles(without(lower(s), asciiPunctuation))), " ")
}

// qaF1Score is LongBench's qa_f1_score: F1 over the words of the normalised texts.
func qaF1Score(pred, answer string) float64 {
	return f1(fields(normalizeAnswer(pred)), fields(normalizeAnswer(answer)))
}

// qaF1ZhScore is qa_f1_zh_score: F1 over jieba's words, lowered and without punctuation.
func qaF1ZhScore(pred, answer string) float64 { return f1(zhWords(pred), zhWords(answer)) }

func zhWords(s string) []string {
	var out []string
	for _, word := range jieba.Cut(s) {
		word = strings.Join(fields(without(lower(word), asciiPunctuation+zhPunctuation)), "")
		if word != "" {
			out = append(out, word)
		}
	}
	return out
}

// f1 is the harmonic mean of precision and recall over multisets of words.
func f1(pred, answer []string) float64 {
	left := map[string]int{}
	for _, w := range answer {
		left[w]++
	}
	same := 0
	for _, w := range pred {
		if left[w] > 0 {
			left[w]--
			same++
		}
	}
	if same == 0 {
		return 0
	}
	precision := float64(same) / float64(len(pred))
	recall := float64(same) / float64(len(answer))
	return (2 * precision * recall) / (precision + recall)
}

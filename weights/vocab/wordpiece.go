package vocab

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"terrace/tokenizer"
)

// maxWordPieceBytes bounds vocab.txt; that of the largest multilingual BERT has 1 MB.
const maxWordPieceBytes = 64 << 20

// wordPieceNames are BERT's special tokens and what they are called where a folder does not say otherwise.
var wordPieceNames = [][2]string{{"unk_token", "[UNK]"}, {"cls_token", "[CLS]"}, {"sep_token", "[SEP]"}, {"pad_token", "[PAD]"}, {"mask_token", "[MASK]"}}

// wholeClasses are the classes of tokenizers that are what tokenizer.json says.
var wholeClasses = []string{"TokenizersBackend", "PreTrainedTokenizerFast"}

// WordPiece reads the vocabulary of a BERT folder: vocab.txt, one token a line, or without one tokenizer.json; and tokenizer_config.json.
// Errors wrap tokenizer.ErrVocab or tokenizer.ErrUnsupported.
func WordPiece(dir string) (v tokenizer.WordPieceVocab, err error) {
	f := folder{dir}
	config, err := f.object("tokenizer_config.json")
	if err != nil {
		return v, fmt.Errorf("vocab: %s: %w", dir, err)
	}
	whole, err := f.read("tokenizer.json", maxTokenizerBytes)
	if err != nil {
		return v, err
	}
	if class, err := config.text("tokenizer_class"); err == nil && whole != nil && (!f.has("vocab.txt") || slices.Contains(wholeClasses, class)) {
		if err := wordPieceJSON(&v, whole, config); err != nil {
			return tokenizer.WordPieceVocab{}, fmt.Errorf("vocab: %s: %w", dir, err)
		}
		return v, nil
	}
	path := filepath.Join(dir, "vocab.txt")
	data, err := f.read("vocab.txt", maxWordPieceBytes)
	if err != nil {
		return v, err
	}
	if data == nil {
		return v, fmt.Errorf("vocab: %s is missing, and so is tokenizer.json: one of them lists a BERT model's tokens: %w", path, tokenizer.ErrVocab)
	}
	if !utf8.Valid(data) {
		return v, fmt.Errorf("vocab: %s is not UTF-8: %w", path, tokenizer.ErrVocab)
	}
	data = bytes.TrimSuffix(data, []byte("\n"))
	for line := range strings.SplitSeq(string(data), "\n") {
		v.Tokens = append(v.Tokens, strings.TrimSuffix(line, "\r"))
	}
	if err := wordPieceSettings(&v, config); err != nil {
		return v, fmt.Errorf("vocab: %s: %w", dir, err)
	}
	return v, nil
}

func wordPieceSettings(v *tokenizer.WordPieceVocab, config object) error {
	class, err := config.text("tokenizer_class")
	if err != nil {
		return err
	}
	if class != "" && !strings.HasPrefix(class, "BertTokenizer") && !strings.HasPrefix(class, "DistilBertTokenizer") {
		return fmt.Errorf("%s: tokenizer_class %q: want BertTokenizer: %w", config.where, class, tokenizer.ErrUnsupported)
	}
	lower, err := config.is("do_lower_case", true)
	if err != nil {
		return err
	}
	strip, err := config.is("strip_accents", lower)
	if err != nil {
		return err
	}
	chinese, err := config.is("tokenize_chinese_chars", true)
	if err != nil {
		return err
	}
	v.Cased, v.KeepAccents, v.JoinCJK = !lower, !strip, !chinese
	names := map[string]string{}
	for _, n := range wordPieceNames {
		text, ok, err := config.tokenText(n[0])
		if err != nil {
			return err
		}
		if !ok {
			text = n[1]
		}
		names[n[0]] = text
		if slices.Contains(v.Tokens, text) {
			v.Special = append(v.Special, text)
		}
	}
	v.Unknown, v.Start, v.End = names["unk_token"], names["cls_token"], names["sep_token"]
	return nil
}

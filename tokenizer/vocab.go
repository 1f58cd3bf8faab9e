package tokenizer

// Model kinds of Vocab.Model.
const (
	ModelBPE     = "bpe"     // byte-pair encoding by merge ranks
	ModelSPM     = "spm"     // SentencePiece BPE: merges by token scores
	ModelUnigram = "unigram" // SentencePiece Unigram: best path by token scores
)

// TokenType says what a token is for; the numbers are those of GGUF files.
type TokenType = int32

const (
	TypeNormal      TokenType = 1
	TypeUnknown     TokenType = 2
	TypeControl     TokenType = 3 // matched in text only with parseSpecial, hidden from plain output
	TypeUserDefined TokenType = 4 // matched in text always
	TypeUnused      TokenType = 5
	TypeByte        TokenType = 6 // "<0x0A>"
)

// Vocab is everything a tokenizer is built from, free of any file format; the
// package weights/vocab fills it from GGUF metadata or from Hugging Face's
// files. An id that a model does not have is -1.
type Vocab struct {
	Model  string    // ModelBPE, ModelSPM or ModelUnigram
	Pre    string    // name of the pre-tokenizer in GGUF files, when Split is nil
	Tokens []string  // text of every id, as the vocabulary writes it
	Scores []float64 // one a token (spm, unigram)
	Types  []int32   // TokenType of every id; nil = all normal
	// Merges of bpe in rank order, "left right" with one space between.
	Merges []string

	BOS, EOS, UNK, PAD int
	// EOG are further ids that end a generation, beside EOS; those known by
	// their text (<|im_end|>, <end_of_turn>, …) are found without being listed.
	EOG []int

	AddBOS, AddEOS bool
	// AddSpacePrefix puts a space before the text (spm, unigram) and takes it
	// away again when decoding.
	AddSpacePrefix bool
	// Prefix and Suffix are put around the ids with addSpecial, instead of BOS
	// and EOS, when either is not nil (a post-processor's template).
	Prefix, Suffix []int

	// RawText (bpe): tokens are written as text with U+2581 for a space, not in
	// GPT-2's byte alphabet; characters without a token become byte tokens.
	RawText bool
	// IgnoreMerges (bpe): a word that is a token is that token.
	IgnoreMerges bool
	// EmitUnknown (bpe): a character that has no token becomes UNK; else it is
	// left out, as llama.cpp and Hugging Face do without an unknown token.
	EmitUnknown bool
	// FuseUnknown (bpe) joins the neighbouring unknown characters of a word into
	// one UNK.
	FuseUnknown bool
	// NoByteFallback: a character without a token is unknown even where the
	// vocabulary has byte tokens (RawText, unigram).
	NoByteFallback bool
	// Outside, when it is not nil, holds the ids that are no part of the model and
	// are only found as added tokens; the model finds all others, whatever their
	// type (tokenizer.json). When it is nil, bpe finds all, and unigram those of
	// type normal, unused and user-defined, the last with score 0 (GGUF).
	Outside map[int]bool
	// Charsmap is SentencePiece's precompiled normalisation table (unigram).
	Charsmap []byte
	// RemoveExtraSpaces trims and joins runs of spaces (unigram, spm).
	RemoveExtraSpaces bool

	// Normalize and Split replace what Model and Pre imply, in order of
	// application; Split is used when it is not nil.
	Normalize []Normalizer
	Split     []PreTokenizer
	// Decode replaces the decoding that Model implies when it is not nil.
	Decode *Decoding

	// Match holds how some tokens are found in text; ids without an entry
	// match exactly.
	Match map[int]Match

	// ControlByText makes control tokens of those whose text says so
	// (</s>, <|im_end|>, …) whatever Types holds: llama.cpp's habit with GGUF
	// files, which decides whether such text is matched without parseSpecial.
	ControlByText bool

	ChatTemplate string
}

// Match are the matching habits of an added token.
type Match struct {
	LStrip, RStrip bool // takes the white space before / after along
	SingleWord     bool // not inside a word
	Normalized     bool // is looked for in the normalised text
}

// Warning is something New noticed that does not stop it: the text says what
// was found and what is used instead.
type Warning string

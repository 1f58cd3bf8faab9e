// Package tokenizer turns text into token ids and back, and renders chat
// templates, from a vocabulary given as a value (Vocab).
//
// It owns: byte-level byte-pair encoding (Sennrich et al. 2016, as GPT-2 does
// it), SentencePiece's BPE and Unigram models (Kudo and Richardson 2018),
// pre-tokenizers, normalizers, added tokens, incremental decoding, and chat
// templates with limits. It never reads a file and knows no file format:
// package weights/vocab fills a Vocab. It never prints; what a caller should
// know is in Tokenizer.Warnings.
//
// Units: positions and lengths of text are bytes unless a name says runes; ids
// run from 0 to Size()-1, and -1 stands for a token the model does not have.
//
// Cost: encoding is linear in the text but for words longer than 24 symbols,
// which take n log n (a heap of candidate merges). English text runs at tens of
// MB/s on one core, most words coming from a cache of bounded size. A model's
// own regular expression runs in linear time where possible and under a
// deadline otherwise.
//
// Concurrency: a Tokenizer is immutable after New and safe for concurrent use;
// a Detokenizer belongs to one sequence.
//
// The parts also implement the interfaces of github.com/sugarme/tokenizer (see
// Pipeline), which adds offsets into the text at about a hundredth of the
// speed; Encode and Pipeline give the same ids.
package tokenizer

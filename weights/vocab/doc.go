// Package vocab fills a tokenizer.Vocab from a model's files: the
// tokenizer.ggml.* keys of GGUF metadata, or a Hugging Face folder with
// tokenizer.json, tokenizer.model (SentencePiece), qwen.tiktoken, or vocab.json
// with merges.txt, beside
// tokenizer_config.json, special_tokens_map.json, generation_config.json and
// chat_template.jinja.
//
// It owns the reading and checking of these files and knows nothing of how text
// is split. All of them are untrusted: sizes are bounded before anything is
// allocated, JSON is read strictly (valid UTF-8, no key twice), nothing in a
// file names another file, and every fault is one error that names the file and
// the entry and wraps tokenizer.ErrVocab or tokenizer.ErrUnsupported. auto_map
// and Python code are never looked at.
//
// Safe for concurrent use; there is no package state.
package vocab

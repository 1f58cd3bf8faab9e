// Package ruler makes RULER's tasks at any length, and the needle-in-a-haystack grid of depth × length.
//
// It owns the generators (niah_single_1-3, niah_multikey_1-3, niah_multivalue, niah_multiquery, vt, cwe, fwe, qa_1 of SQuAD and qa_2
// of HotpotQA; templates, needles, documents and counts as in NVIDIA/RULER), seeded so that the same seed, length and tokenizer give
// the same sample on every machine, and the fitting of a sample to a length in tokens, answer and chat template included. Scores are
// RULER's string_match_all, of qa_1 and qa_2 its string_match_part. Random streams are our own, so samples are distributed as RULER's
// but not equal to its files; a sentence ends at ". ", "! " or "? " where RULER asks NLTK. Of qa, sample i is the file's question i,
// as there; documents are shuffled for each by itself, where RULER shuffles all samples of as many documents alike. A question whose own
// documents do not fit the length fails (RULER's generator never ends there).
//
// It reads essays, SQuAD's and HotpotQA's files from a data folder (a haystack is what the user has) and never downloads. Lengths
// are tokens.
package ruler

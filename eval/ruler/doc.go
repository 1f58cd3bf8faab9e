// Package ruler makes RULER's synthetic tasks at any length, and the needle-in-a-haystack grid of depth × length.
//
// It owns the generators (niah_single_1-3, niah_multikey_1-3, niah_multivalue, niah_multiquery, vt, cwe, fwe; templates,
// needles and counts as in NVIDIA/RULER), seeded so that the same seed, length and tokenizer give the same sample on every
// machine, and the fitting of a sample to a length in tokens, answer and chat template included. Scores are RULER's
// string_match_all. Random streams are our own, so samples are distributed as RULER's but not equal to its files; a
// sentence ends at ". ", "! " or "? " where RULER asks NLTK.
//
// It reads essays from a data folder (a haystack is what the user has) and never downloads. Lengths are tokens.
package ruler

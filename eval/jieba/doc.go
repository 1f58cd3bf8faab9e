// Package jieba cuts Chinese text into words exactly as jieba 0.42.1 does with its default dictionary, accurate mode and
// HMM on: the segmentation that LongBench's Chinese metrics are defined on.
//
// It owns the dictionary and the hidden Markov model's tables (data/jieba.zst, made by eval/jieba/gen from jieba's sdist;
// MIT licence, notice in data/LICENSE) and the two algorithms: the most probable path through the graph of dictionary
// words, and Viterbi decoding of begin/middle/end/single states for runs of single characters. It never scores and knows
// no user dictionaries, other modes or other languages.
//
// Text is cut by Unicode code points. The dictionary (349,046 words, about 1.9 MB embedded, 7 MB in memory) is unpacked
// at the first call. Cut is safe for concurrent use.
package jieba

// Package bert computes sentence embeddings with BERT encoders (Devlin et al. 2019), such as all-MiniLM-L6-v2: token,
// position and segment embeddings, layers of full self-attention and a feed-forward network with LayerNorm after each
// residual sum, then the mean of a text's rows (or the row of [CLS]), scaled to length 1.
//
// It owns the layout of these models, their figures and the pass through the layers, on internal/kernels. It is apart from
// package model, whose models generate: an encoder has no cache, no logits and no next token. It reads no file itself:
// package weights presents the folder or file, weights/vocab the tokens.
//
// Ids are those of Hugging Face's BertTokenizerFast for every text whose characters that library's Unicode tables know: of 198,658
// single characters 568 differ, marks and signs of newer versions of Unicode.
//
// Units and shapes: a text is n ids, those of [CLS] and [SEP] included; hidden rows are float32 [n, Hidden], row-major;
// embeddings are float32 [Hidden] of length 1, whether or not the folder lists a normalising module.
//
// Cost: 2·P operations a token, P the weights of the layers (10.6 M in MiniLM-L6), and 4·n·Hidden·layers for attention; the
// weights are read once a call: 43 MB in float32. All products are of class Exact.
//
// Invariants:
//  1. A text's embedding does not depend on the texts beside it, on threads or on how they are grouped.
//  2. A text that is too long is an error, never cut in silence.
//
// Concurrency: an Encoder computes one call at a time (calls queue); Encode, Close aside, may come from many goroutines.
package bert

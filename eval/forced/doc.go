// Package forced measures policies with the text given, token by token: perplexity of long texts with the policy at work
// while scoring, and agreement of a policy with full on the same prompts.
//
// It owns the suites perplexity (wikitext-2, PG-19 or any text files) and agreement (any prompts: token agreement, KL
// divergence from full, length of the common prefix). Both read a prompt, let the policy act, and then force the next
// tokens one at a time as decoding would. It never samples. Log-likelihoods and divergences are nats a token.
package forced

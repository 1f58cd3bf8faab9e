package policy

import "fmt"

// think prunes channels (dimensions) of the prompt's keys that the last queries hardly use (Xu et al. 2024, arXiv 2407.21018; kvpress's
// ThinKPress). A channel's score is the mean square of the last window_size queries, averaged over the heads of the group, times the
// mean square of the keys that stay after the prompt; the lowest key_channel_compression_ratio of a KV head's channels become 0 in all
// of the prompt's tokens. Keys of generated tokens are whole.
//
// Pages keep their size: a channel that is 0 takes the room that it took. What is saved is what somebody else drops; beside a policy
// that keeps tokens (snapkv+think) the channels are chosen from what that one has left.
type think struct {
	base
	ratio  float64
	window int
	buf    []float32
	query  []float64
	scores []float32
	pick   picker
}

func init() {
	register(Info{
		Name:    "think",
		Summary: "sets to 0 key channels that the prompt's last queries hardly use",
		Paper:   "ThinK: Thinner Key Cache by Query-Driven Pruning, arXiv 2407.21018",
		Phase:   PhasePrompt,
		Params: []Param{
			{Name: "key_channel_compression_ratio", Aliases: []string{"channels"}, Default: "0.5", Doc: "part of a head's key channels that becomes 0, from 0 and below 1"},
			{Name: "window_size", Aliases: []string{"window"}, Default: "32", Doc: "newest tokens whose queries vote"},
		},
	}, func(a *args) Policy {
		p := &think{base: a.base(), ratio: a.float("key_channel_compression_ratio", 0, 1), window: a.int("window_size", 1, maxTokens)}
		if p.ratio == 1 {
			a.fail("key_channel_compression_ratio", "a part below 1", nil)
		}
		return p
	})
}

func (p *think) Needs() Needs { return Needs{Keys: true, OwnChannels: true, Queries: p.window} }

// Bind refuses keys whose channels are more than a key's.
func (p *think) Bind(m Model) error {
	for i := range m.Layers {
		if kv := m.Layers[i].KV; m.Acts(i) && (kv.ValueInKey || kv.Index > 0) {
			return fmt.Errorf("policy: think: keys of layer %d are values too, or have a trained indexer's behind them: channels of theirs cannot be 0: %w", i, ErrModel)
		}
	}
	return nil
}

// ZeroChannels implements ChannelPruner.
func (p *think) ZeroChannels(l *Layer, zero *Selection) {
	zero.Reset(l.KVHeads)
	gone := int(float64(l.KeyDim) * p.ratio)
	if gone == 0 {
		return
	}
	for g := range l.KVHeads {
		p.score(l, g)
		zero.Heads[g] = p.pick.best(zero.Heads[g], p.scores, gone, 0)
	}
}

// score fills scores with how little each channel of a KV head matters: less is negative.
func (p *think) score(l *Layer, kvHead int) {
	p.query, p.scores = sized(p.query, l.KeyDim), sized(p.scores, l.KeyDim)
	clear(p.query)
	rows := min(l.Rows, p.window)
	for h := kvHead * l.Group(); h < (kvHead+1)*l.Group(); h++ {
		for r := l.Rows - rows; r < l.Rows; r++ {
			for d, x := range l.Queries[(r*l.Heads+h)*l.KeyDim:][:l.KeyDim] {
				p.query[d] += float64(x) * float64(x)
			}
		}
	}
	keys := make([]float64, l.KeyDim)
	eachKey(l, kvHead, &p.buf, func(_ int, key []float32) {
		for d, x := range key {
			keys[d] += float64(x) * float64(x)
		}
	})
	scale := 1 / float64(rows*l.Group()) / float64(l.Tokens(kvHead))
	for d, x := range keys {
		p.scores[d] = -float32(p.query[d] * x * scale)
	}
}

// ChannelPruner decides, once a layer, which channels of the prompt's keys become 0.
type ChannelPruner interface {
	Policy
	// ZeroChannels is called for each global layer after the attention of the prompt's last token, and after a PromptKeeper's choice
	// has been carried out; layers ascend. zero arrives empty and gets dimensions of the keys, per KV head.
	ZeroChannels(l *Layer, zero *Selection)
}

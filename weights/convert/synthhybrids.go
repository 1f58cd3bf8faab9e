package convert

// Granite 4 hybrids and Nemotron-H: state spaces of heads of 64 with 128 numbers of state, and few layers that attend.
const (
	ssmHeadDim = 64
	ssmState   = 128
)

// ssmShape is the inner width of the state spaces and how many groups share their inputs: Granite has twice the width in one, Nemotron-H
// half as much again, in whole eights of heads.
func (s *Spec) ssmShape() (inner, groups int) {
	if s.Arch == "granitehybrid" {
		return max(1, 2*s.Hidden/ssmHeadDim) * ssmHeadDim, 1
	}
	const eight = 8 * ssmHeadDim
	return (3*s.Hidden/2 + eight - 1) / eight * eight, 8
}

// ssm adds a state space.
func (l *layout) ssm(b string) {
	inner, groups := l.ssmShape()
	channels, heads := inner+2*groups*ssmState, inner/ssmHeadDim
	l.matrix(b+"ssm_in.weight", 1, inner+channels+heads, l.Hidden)
	l.matrix(b+"ssm_conv1d.weight", 1, channels, 4)
	l.vector(b+"ssm_conv1d.bias", channels, 0, 0.1)
	l.numbers(b+"ssm_a", -0.5, 0.1, heads, 1)
	l.vector(b+"ssm_dt.bias", heads, 0, 1)
	l.numbers(b+"ssm_d", 1, 0.1, heads, 1)
	l.numbers(b+"ssm_norm.weight", 1, 0.1, groups, inner/groups)
	l.matrix(b+"ssm_out.weight", l.out, l.Hidden, inner)
}

func ssmMeta(s *Spec, set func(string, any)) {
	inner, groups := s.ssmShape()
	set("ssm.conv_kernel", uint32(4))
	set("ssm.state_size", uint32(ssmState))
	set("ssm.group_count", uint32(groups))
	set("ssm.time_step_rank", uint32(inner/ssmHeadDim))
	set("ssm.inner_size", uint32(inner))
}

// attending is a list of the heads of keys and values of each layer: none where it keeps state.
func (s *Spec) attending(attends func(i int) bool) []int32 {
	kv := make([]int32, s.Layers)
	for i := range kv {
		if attends(i) {
			kv[i] = int32(s.KVHeads)
		}
	}
	return kv
}

// Granite 4: one layer of ten attends, without rotation.
func graniteAttends(i int) bool { return i%10 == 5 }

func graniteLayer(l *layout, i int, b string) {
	l.norm(b+"attn_norm", l.Hidden)
	if graniteAttends(i) {
		l.attention(b, l.KVHeads, l.HeadDim)
	} else {
		l.ssm(b)
	}
	l.norm(b+"ffn_norm", l.Hidden)
	if l.Experts == 0 {
		l.network(b, l.FFN)
		return
	}
	l.experts(b, false)
	l.beside(b, true)
}

// beside adds the network that every token uses beside its experts, as wide as one.
func (l *layout) beside(b string, gated bool) {
	if gated {
		l.matrix(b+"ffn_gate_shexp.weight", 1, l.ExpertFFN, l.Hidden)
	}
	l.matrix(b+"ffn_up_shexp.weight", 1, l.ExpertFFN, l.Hidden)
	l.matrix(b+"ffn_down_shexp.weight", l.out, l.Hidden, l.ExpertFFN)
}

func graniteMeta(s *Spec, set func(string, any)) {
	set("attention.head_count_kv", s.attending(graniteAttends))
	set("rope.scaling.finetuned", false)
	set("embedding_scale", float32(12))
	set("residual_scale", float32(0.22))
	set("logit_scale", float32(8))
	ssmMeta(s, set)
	besideMeta(s, set)
}

func besideMeta(s *Spec, set func(string, any)) {
	expertMeta(s, set)
	if s.Experts > 0 {
		set("expert_shared_feed_forward_length", uint32(s.ExpertFFN))
		set("expert_shared_count", uint32(1))
	}
}

// Nemotron-H: one mixer a layer; of each seven, three keep state, one attends and three are networks (MEMEM*E).
func nemotronAttends(i int) bool { return i%7 == 5 }

func nemotronNetwork(i int) bool { return i%7 == 6 || i%7 < 5 && i%7%2 == 1 }

func nemotronLayer(l *layout, i int, b string) {
	l.norm(b+"attn_norm", l.Hidden)
	switch {
	case nemotronAttends(i):
		l.attention(b, l.KVHeads, l.HeadDim)
	case !nemotronNetwork(i):
		l.ssm(b)
	case l.Experts == 0:
		l.matrix(b+"ffn_up.weight", 1, l.FFN, l.Hidden)
		l.matrix(b+"ffn_down.weight", l.out, l.Hidden, l.FFN)
	default:
		l.matrix(b+"ffn_gate_inp.weight", 1, l.Experts, l.Hidden)
		l.vector(b+"exp_probs_b.bias", l.Experts, 0, 0.1)
		l.matrix(b+"ffn_up_exps.weight", 1, l.Experts, l.ExpertFFN, l.Hidden)
		l.matrix(b+"ffn_down_exps.weight", l.out, l.Experts, l.Hidden, l.ExpertFFN)
		l.beside(b, false)
	}
}

func nemotronMeta(s *Spec, set func(string, any)) {
	widths := make([]int32, s.Layers)
	for i := range widths {
		if nemotronNetwork(i) {
			widths[i] = int32(s.FFN)
		}
	}
	set("feed_forward_length", widths)
	set("attention.head_count_kv", s.attending(nemotronAttends))
	ssmMeta(s, set)
	besideMeta(s, set)
}

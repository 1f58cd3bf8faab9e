package vulkan

import (
	"slices"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/model"
)

// layered is a model of so many layers with experts of equal size, an attention that the test has weights of, and one that it has not.
func layered(t *testing.T, layers int) *model.Model {
	x := newMoE(8, 2)
	x.l.Q, x.l.O = x.linear(t, 1000, x.Hidden), x.linear(t, x.Hidden, 1000)
	m := x.build(t, quant.F32, 50, false)
	m.Layers, m.Layer = layers, slices.Repeat(m.Layer, layers)
	m.Params.Layers = slices.Repeat(m.Params.Layers, layers)
	for i := range m.Layer {
		m.Layer[i].Heads, m.Layer[i].KVHeads, m.Layer[i].Owner = 1, 1, i
	}
	return m
}

// TestPlace: what fits is chosen, the attention of layers before their experts and the last layers before others; the experts of first layers, or
// those that there are no kernels for, stay on the CPU where that was asked for.
func TestPlace(t *testing.T) {
	m := layered(t, 4)
	l := &m.Params.Layers[0]
	attend, experts := bytesOf([]*model.Linear{l.Q, l.O}, nil), networkBytes(l)
	if attend < 2*4*72*1000 || experts < 8*3*4*72*50 {
		t.Fatalf("a layer takes %d and %d bytes", attend, experts)
	}
	passes := mixingBytes(m)
	if passes < 512*2*4*(2*50+72) {
		t.Errorf("passes take %d bytes", passes)
	}
	many := layered(t, 4)
	many.Experts = mostExperts + 1
	latent := layered(t, 4)
	latent.Layer[1].Latent = &model.Latent{}
	for _, c := range []struct {
		name          string
		m             *model.Model
		layers, apart int
		free          int64
		want          string // of each layer: . the host's, a all but the experts, e the experts alone, x all
		why           string
	}{
		{"all", m, model.AllLayers, 0, 1 << 40, "xxxx", ""},
		{"room for all", m, model.AutoLayers, 0, 4*(attend+experts) + passes, "xxxx", ""},
		{"a byte less", m, model.AutoLayers, 0, 4*(attend+experts) + passes - 1, "axxx", "no room for those of layer 0"},
		{"room for two's experts", m, model.AutoLayers, 0, 4*attend + 2*experts + passes, "aaxx", "of 2 the device computes all but the experts; it has no room for those of layer 1"},
		{"no experts", m, model.AutoLayers, 0, 4 * attend, "aaaa", "of 4 the device"},
		{"three's attention", m, model.AutoLayers, 0, 4*attend - 1, ".aaa", "of 3 the device computes all but the experts; it has no room for those of layer 3"},
		{"nothing", m, model.AutoLayers, 0, attend - 1, "....", "no room for layer 3"},
		{"a number", m, 3, 0, 1 << 40, ".xxx", ""},
		{"experts of the first two asked for", m, model.AllLayers, 2, 1 << 40, "aaxx", "of 2 the device computes all but the experts"},
		{"experts of all", m, model.AutoLayers, 1024, 1 << 40, "aaaa", "of 4"},
		{"experts of a layer that is not there", m, 2, 1, 1 << 40, "..xx", ""},
		{"too many experts", many, model.AutoLayers, 0, 1 << 40, "aaaa", "no kernels for 2049 experts"},
		{"latent keys", latent, model.AutoLayers, 0, 1 << 40, "xexx", "of 1 the device computes the experts alone; there are no kernels for latent keys, which layer 1 has"},
		{"experts alone, asked for", latent, model.AutoLayers, 2, 1 << 40, "a.xx", "of 1 the device computes all but the experts; there"},
		{"experts alone, no room", latent, model.AutoLayers, 0, 3*attend + 2*experts + passes, "a.xx", "no room for those of layer 1"},
		{"experts alone, room", latent, model.AutoLayers, 0, 3*attend + 3*experts + passes, "aexx", "no room for those of layer 0"},
	} {
		at, _ := place(c.m, model.BackendOptions{DeviceLayers: c.layers, HostExperts: c.apart}, c.free)
		got := ""
		for i := range at.on {
			got += string(".?xae???"[btoi(at.alone[i])*4+btoi(at.on[i])*2+btoi(at.apart[i])])
		}
		_, why := at.count()
		if got != c.want || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got, why, c.want, c.why)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

package hf

// windowLayers publishes which layers slide: those that layer_types says, else those that def says.
func (v *view) windowLayers(def func(i int) bool) {
	sliding := v.layerTypes()
	if len(v.faults.list) > 0 || sliding == nil && def == nil {
		return
	}
	if sliding == nil {
		sliding = make([]bool, v.layers)
		for i := range sliding {
			sliding[i] = def(i)
		}
	}
	if v.published("attention.sliding_window") > 0 {
		v.slidingLayers(sliding)
	}
}

// none is the pattern of no layer.
func none(int) bool { return false }

// butEach is a pattern in which every period-th layer sees all and the others slide.
func butEach(period int) func(i int) bool { return func(i int) bool { return (i+1)%period != 0 } }

// slidingRope publishes the rotary embedding of layers with a window: the config's own for them, else that of the others without scaling.
func (v *view) slidingRope(defTheta float64) {
	full, local := v.rotary("full_attention", "rope_theta", defTheta), v.rotary("sliding_attention", "rope_theta", defTheta)
	p, _ := v.cfg.object("rope_parameters")
	if byType := p.has("full_attention") || p.has("sliding_attention"); !byType {
		local.method = "default"
	}
	if local.method != "default" {
		local.params.wrong("rope_type", "default (the only one supported for sliding layers)")
		return
	}
	v.setFloat("rope.freq_base_swa", local.theta)
	if local.dim != full.dim {
		v.setInt("rope.dimension_count_swa", local.dim)
	}
}

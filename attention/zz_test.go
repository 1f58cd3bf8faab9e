package attention
import ("testing";"terrace/internal/kernels";"fmt")
func TestZZ(t *testing.T) {
	pool := kernels.NewPool(2)
	defer pool.Close()
	window := params(9, 3, 64)
	window.Window = 150
	c := attendCase{name: "f32 window", p: window, tokens: 400, late: 50, page: 32}
	eachPath(t, func(t *testing.T) {
	const rows = 3
	base := c.make(11, rows)
	run := func(views []View) []float32 {
		s := base
		s.Views, s.Out = views, make([]float32, len(base.Out))
		Attend(pool, 0, c.p, []Seq{s})
		return s.Out
	}
	var ref []float32
	for i, pg := range []int{16,16,48,64,48,48,16} {
		var out []View
		for _, v := range base.Views { out = append(out, reordered(v, nil, i>0, pg)) }
		o := run(out)
		if ref == nil { ref = o; continue }
		n := 0
		for i := range o { if o[i] != ref[i] { n++; if n < 4 { fmt.Println(kernels.Path(), pg, "row", i/(9*64), "head", i/64%9, "dim", i%64, o[i], ref[i]) } } }
		fmt.Println(kernels.Path(), i, pg, n, "differ") 
	}
	})
}

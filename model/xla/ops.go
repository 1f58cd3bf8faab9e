package xla

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"terrace/model"
)

type node = *graph.Node

// linear is x·Wᵀ + b for x [n, cols], its weight and bias the next two parameters.
func (p *params) linear(x node) node {
	w, bias := p.next(), p.next()
	y := product(x, []int{1}, nil, w, []int{1}, nil)
	if bias == nil {
		return y
	}
	return graph.Add(y, graph.ExpandLeftToRank(bias, 2))
}

// product is graph.DotGeneral with float32 sums and results; x is rounded to y's type.
func product(x node, xContracting, xBatch []int, y node, yContracting, yBatch []int) node {
	if y.DType() == dtypes.Float32 {
		return graph.DotGeneral(x, xContracting, xBatch, y, yContracting, yBatch)
	}
	return graph.Dot(graph.ConvertDType(x, y.DType()), y).WithAccumulatorDType(dtypes.Float32).WithOutputDType(dtypes.Float32).
		General(xContracting, xBatch, yContracting, yBatch)
}

// norm is the model's normalisation of each row, with the next two parameters as weight and bias; skip leaves x alone, as does a norm
// that the model does not have.
func (p *params) norm(c *model.Config, x node, skip bool) node {
	w, bias := p.next(), p.next()
	if skip || w == nil {
		return x
	}
	if c.Norm == model.LayerNorm {
		x = graph.Sub(x, rowMean(x))
	}
	x = graph.Mul(unitRows(x, c.NormEps), graph.ExpandLeftToRank(w, 2))
	if bias != nil {
		x = graph.Add(x, graph.ExpandLeftToRank(bias, 2))
	}
	return x
}

// optionalNorm is norm where the model has it.
func (p *params) optionalNorm(c *model.Config, x node) node {
	return p.norm(c, x, p.nodes[p.at] == nil)
}

func rowMean(x node) node {
	last := x.Rank() - 1
	return graph.ExpandAxes(graph.ReduceMean(x, last), last)
}

// unitRows divides each row by the root of its mean square.
func unitRows(x node, eps float32) node {
	return graph.Mul(x, graph.Rsqrt(graph.AddScalar(rowMean(graph.Mul(x, x)), eps)))
}

// factor multiplies by a factor whose zero value means 1.
func factor(x node, f float32) node {
	if f == 0 || f == 1 {
		return x
	}
	return graph.MulScalar(x, f)
}

// softcap is cap·tanh(x/cap); 0 = no cap.
func softcap(x node, limit float32) node {
	if limit <= 0 {
		return x
	}
	return graph.MulScalar(graph.Tanh(graph.MulScalar(x, 1/limit)), limit)
}

// activate is the model's nonlinearity.
func activate(act model.Activation, x node) node {
	switch act {
	case model.SiLU:
		return graph.Mul(x, graph.Logistic(x))
	case model.GELUTanh:
		inner := graph.Add(x, graph.MulScalar(graph.Mul(x, graph.Mul(x, x)), 0.044715))
		return half(x, graph.Tanh(graph.MulScalar(inner, math.Sqrt(2/math.Pi))))
	case model.GELU:
		return half(x, graph.Erf(graph.MulScalar(x, 1/math.Sqrt2)))
	}
	return graph.MaxScalar(x, 0)
}

// softplus is ln(1 + e^x).
func softplus(x node) node {
	return graph.Add(graph.MaxScalar(x, 0), graph.Log1P(graph.Exp(graph.Neg(graph.Abs(x)))))
}

// half is x/2·(1 + y).
func half(x, y node) node { return graph.Mul(graph.MulScalar(x, 0.5), graph.AddScalar(y, 1)) }

// headNorm is the norm of each head, or of the whole row where the weight is as wide; x is [n, heads·dim].
func (p *params) headNorm(c *model.Config, x node, heads, dim int) node {
	w, _ := p.next(), p.next()
	if w == nil {
		return x
	}
	rows, width := x.Shape().Dim(0), x.Shape().Dim(1)
	if w.Shape().Size() == width && heads > 1 {
		return graph.Mul(unitRows(x, c.NormEps), graph.ExpandLeftToRank(w, 2))
	}
	x = graph.Mul(unitRows(graph.Reshape(x, rows, heads, dim), c.NormEps), graph.ExpandLeftToRank(w, 3))
	return graph.Reshape(x, rows, width)
}

// turn rotates x [n, heads·dk] by the angles cos and sin [n, dim/2]; nil = no rotation.
func turn(x node, heads, keyDim int, interlaced bool, cos, sin node) node {
	if cos == nil {
		return x
	}
	rows, pairs := x.Shape().Dim(0), cos.Shape().Dim(1)
	x = graph.Reshape(x, rows, heads, keyDim)
	cos, sin = graph.ExpandAxes(cos, 1), graph.ExpandAxes(sin, 1)
	turning := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, 2*pairs))
	var a, b node
	if interlaced {
		split := graph.Reshape(turning, rows, heads, pairs, 2)
		a = graph.Squeeze(graph.Slice(split, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(), graph.AxisElem(0)), 3)
		b = graph.Squeeze(graph.Slice(split, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(), graph.AxisElem(1)), 3)
	} else {
		a = graph.Slice(turning, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, pairs))
		b = graph.Slice(turning, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(pairs, 2*pairs))
	}
	na := graph.Sub(graph.Mul(a, cos), graph.Mul(b, sin))
	nb := graph.Add(graph.Mul(a, sin), graph.Mul(b, cos))
	if interlaced {
		turning = graph.Reshape(graph.Stack([]node{na, nb}, 3), rows, heads, 2*pairs)
	} else {
		turning = graph.Concatenate([]node{na, nb}, 2)
	}
	if 2*pairs < keyDim {
		rest := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(2*pairs))
		turning = graph.Concatenate([]node{turning, rest}, 2)
	}
	return graph.Reshape(turning, rows, heads*keyDim)
}

// lookup are the rows of a table [v, d] with numbers ids [n].
func lookup(table, ids node) node { return graph.Gather(table, graph.ExpandAxes(ids, 1)) }

// embedded is lookup in float32.
func embedded(table, ids node) node { return asFloat(lookup(table, ids)) }

// asFloat is x in float32; of a condition, 1 where it holds, else 0.
func asFloat(x node) node { return graph.ConvertDType(x, dtypes.Float32) }

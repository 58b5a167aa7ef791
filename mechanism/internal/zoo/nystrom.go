package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// nystromAttention is o = F·Z·(B·v) (Xiong et al. 2021, eq. 13). F is the softmax of
// queries over landmarks of keys, B of landmarks of queries over keys, A of landmarks
// of queries over landmarks of keys, and Z the pseudo-inverse of A.
type nystromAttention struct {
	landmarks, iterations, convWidth int
	maskedAsZero                     bool // masked keys are zeros, not absent
	params                           *param.Set
	softmax                          headwise.Softmax
}

func NewNystrom(r *entry.Reader) (headwise.Function, error) {
	x := &nystromAttention{softmax: headwise.NewSoftmax(0)}
	var err error
	if x.landmarks, err = r.Integer("landmarks", 1, 4096); err != nil {
		return nil, err
	}
	if x.iterations, err = r.Integer("iterations", 0, 64); err != nil {
		return nil, err
	}
	if x.convWidth, err = r.Integer("conv", 0, 4097); err != nil || x.convWidth > 0 && x.convWidth%2 == 0 {
		return nil, r.Refuse("conv", "an odd number up to 4097, or 0")
	}
	form, err := r.Choice("form", "paper", "code")
	if err != nil {
		return nil, err
	}
	x.maskedAsZero = form == "code"
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	if x.convWidth > 0 {
		heads := max(r.Heads, 1)
		if err := r.Room("conv", heads, x.convWidth); err != nil {
			return nil, err
		}
		x.params = new(param.Set)
		conv := x.params.New("conv", true, heads, x.convWidth)
		for i := range conv.Data {
			conv.Data[i] = float((2*key.Float64(uint64(i)) - 1) / math.Sqrt(float64(x.convWidth)))
		}
	}
	return x, nil
}

func (x *nystromAttention) Traits() attention.Traits {
	return attention.Traits{Name: "nystrom", MixedQueries: true, NoCausal: "a landmark is a mean of tokens, later ones too"}
}

func (x *nystromAttention) Setting() string {
	form := "paper"
	if x.maskedAsZero {
		form = "code"
	}
	return fmt.Sprintf("nystrom landmarks=%d iterations=%d conv=%d form=%s", x.landmarks, x.iterations, x.convWidth, form)
}

func (x *nystromAttention) Params() *param.Set    { return x.params }
func (x *nystromAttention) Constants() *param.Set { return nil }

func (x *nystromAttention) Check(c *attention.Call) error {
	if x.convWidth == 0 {
		return nil
	}
	return entry.CheckHeads("conv of nystrom", x.params.All()[0].Shape[0], c.Q.H)
}

// nystromPass holds the intermediate values of one head.
type nystromPass struct {
	q, k, v tensor.Mat // k and v without masked keys, unless maskedAsZero
	mask    []bool     // of k
	ql, kl  tensor.Mat // landmarks
	a, z    tensor.Mat
	u, w    tensor.Mat // B·v and Z·B·v
	f, b    []float    // log-sum-exps of F and B
	o       tensor.Mat // output before the convolution
}

// newPass computes the landmarks and A of a head, and views the saved elements.
func (x *nystromAttention) newPass(h *headwise.Head, saved []float) nystromPass {
	p := nystromPass{q: h.Q, k: h.K, v: h.V, mask: h.Mask}
	if !x.maskedAsZero {
		p.k, p.v, p.mask = h.GatherUnmasked(h.K), h.GatherUnmasked(h.V), nil
	}
	l := x.countLandmarks(p.q.Rows, p.k.Rows)
	p.ql, p.kl = h.TakeScratch(l, p.q.Cols), h.TakeScratch(l, p.k.Cols)
	segmentMeans(h, p.ql, p.q)
	segmentMeans(h, p.kl, p.k)
	p.a, p.z = h.TakeScratch(l, l), h.TakeScratch(l, l)
	h.Multiply(p.a, p.ql, p.kl, false, true, false)
	h.Table.Scale(p.a.Data, float(1/math.Sqrt(float64(p.q.Cols))), p.a.Data)
	h.SoftmaxRows(p.a)

	dv, n := p.v.Cols, p.q.Rows
	next := func(n int) []float {
		x := saved[:n:n]
		saved = saved[n:]
		return x
	}
	matrix := func(rows, cols int) tensor.Mat {
		return tensor.Mat{Data: next(rows * cols), Rows: rows, Cols: cols, Stride: cols}
	}
	p.f, p.b = next(n), next(l)
	p.u, p.w, p.z = matrix(l, dv), matrix(l, dv), matrix(l, l)
	p.o = h.Out
	if x.convWidth > 0 {
		p.o = matrix(n, dv)
	}
	return p
}

// countLandmarks returns the number of landmarks for n queries and m keys.
func (x *nystromAttention) countLandmarks(n, m int) int { return min(x.landmarks, n, m) }

// savedSize returns the number of elements that Forward saves.
func (x *nystromAttention) savedSize(n, m, dv int) int {
	l := x.countLandmarks(n, m)
	size := n + l + 2*l*dv + l*l
	if x.convWidth > 0 {
		size += n * dv
	}
	return size
}

func (x *nystromAttention) Forward(h *headwise.Head) {
	m := h.K.Rows
	if !x.maskedAsZero {
		m = h.CountUnmasked()
	}
	p := x.newPass(h, h.SaveBuffer(x.savedSize(h.Q.Rows, m, h.V.Cols)))
	h.Residual = PseudoInverse(h, p.z, p.a, x.iterations)
	x.softmax.Forward(h.Scratch, p.u, p.b, p.landmarkRows())
	h.Multiply(p.w, p.z, p.u, false, false, false)
	x.softmax.Forward(h.Scratch, p.o, p.f, p.queryRows())
	if x.convWidth > 0 {
		for i := range p.o.Rows {
			copy(h.Out.Row(i), p.o.Row(i))
		}
		x.addConvolution(h)
	}
}

// landmarkRows returns the operands of B, the softmax of landmarks of queries over
// keys.
func (p *nystromPass) landmarkRows() headwise.Rows {
	return headwise.Rows{Q: p.ql, K: p.k, V: p.v, Mask: p.mask}
}

// queryRows returns the operands of F, the softmax of queries over landmarks of keys.
func (p *nystromPass) queryRows() headwise.Rows {
	return headwise.Rows{Q: p.q, K: p.kl, V: p.w}
}

func (x *nystromAttention) Backward(h *headwise.Head, g *headwise.Grads) {
	p := x.newPass(h, h.Saved)
	l := p.a.Rows
	dkl, dw := h.TakeScratch(l, p.k.Cols), h.TakeScratch(l, p.v.Cols)
	x.softmax.Backward(h.Scratch, headwise.RowsGrad{DOut: g.DOut, DQ: g.DQ, DK: dkl, DV: dw}, p.o, p.f, p.queryRows())

	dz, du := h.TakeScratch(l, l), h.TakeScratch(l, p.v.Cols)
	h.Multiply(dz, dw, p.u, false, true, false)
	h.Multiply(du, p.z, dw, true, false, false)

	dql := h.TakeScratch(l, p.q.Cols)
	dk, dv := g.DK, g.DV
	if !x.maskedAsZero {
		dk, dv = h.UnmaskedGradBuffer(dk, p.k.Rows), h.UnmaskedGradBuffer(dv, p.k.Rows)
	}
	x.softmax.Backward(h.Scratch, headwise.RowsGrad{DOut: du, DQ: dql, DK: dk, DV: dv}, p.u, p.b, p.landmarkRows())

	da := h.TakeScratch(l, l)
	clear(da.Data)
	PseudoInverseGrad(h, da, dz, p.a, x.iterations)
	h.SoftmaxRowsGrad(da, p.a)
	h.Table.Scale(da.Data, float(1/math.Sqrt(float64(p.q.Cols))), da.Data)
	h.Multiply(dql, da, p.kl, false, false, true)
	h.Multiply(dkl, da, p.ql, true, false, true)
	segmentMeansGrad(h, g.DQ, dql)
	segmentMeansGrad(h, dk, dkl)
	if !x.maskedAsZero {
		h.ScatterUnmasked(g.DK, dk)
		h.ScatterUnmasked(g.DV, dv)
	}
	if x.convWidth > 0 {
		x.addConvolutionGrad(h, g)
	}
}

// convWeights returns the convolution weights of the head and their first index in the
// parameter.
func (x *nystromAttention) convWeights(h *headwise.Head) (w []float, at int) {
	p := x.params.All()[0]
	at = min(h.Head, p.Shape[0]-1) * x.convWidth
	return p.Data[at:][:x.convWidth], at
}

// tapTokens returns the tokens j0 ≤ j < j1 whose values weight t of the convolution
// adds to outputs j - shift.
func (x *nystromAttention) tapTokens(h *headwise.Head, t int) (j0, j1, shift int) {
	shift = t - x.convWidth/2
	return max(0, shift), min(h.V.Rows, h.Out.Rows+shift), shift
}

// addConvolution adds the convolution of the values to the output, each channel
// separately. Values beyond both ends are 0.
func (x *nystromAttention) addConvolution(h *headwise.Head) {
	w, _ := x.convWeights(h)
	for t, y := range w {
		j0, j1, shift := x.tapTokens(h, t)
		for j := j0; j < j1; j++ {
			h.Table.Axpy(h.Out.Row(j-shift), y, h.V.Row(j))
		}
	}
}

// addConvolutionGrad adds the gradients of the values and of the convolution weights.
func (x *nystromAttention) addConvolutionGrad(h *headwise.Head, g *headwise.Grads) {
	w, at := x.convWeights(h)
	for t, y := range w {
		j0, j1, shift := x.tapTokens(h, t)
		for j := j0; j < j1; j++ {
			if h.IsUnmasked(j) {
				do := g.DOut.Row(j - shift)
				h.Table.Axpy(g.DV.Row(j), y, do)
				g.Params[0][at+t] += h.Table.Dot(h.V.Row(j), do)
			}
		}
	}
}

func (x *nystromAttention) Cost(s attention.Shape) headwise.Cost {
	n, m, d, dv := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	l := float64(x.countLandmarks(s.N, s.M))
	products := float64(4*x.iterations+3)*l*l*l + l*l*dv + (n+m)*l*(d+dv) + l*l*d + float64(x.convWidth)*n*dv
	kept := float64(x.savedSize(s.N, s.M, s.Dv)) + 7*l*l + 2*l*d
	return headwise.Cost{FLOPs: 2 * products, Bytes: entry.ElementBytes() * kept}
}

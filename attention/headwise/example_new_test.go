//go:build !float64

package headwise_test

import (
	"fmt"
	"log"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// near is softmax of q·k/√D - a·|i-j|, where each head learns its a, the slope (Press et al. 2022,
// who do not learn it).
type near struct{ slope *param.Set }

func (near) Traits() attention.Traits {
	return attention.Traits{Name: "near", Positive: true, Causal: true, Banded: true, PlacedQueries: true}
}

func (near) Setting() string             { return "" }
func (m near) Params() *param.Set        { return m.slope }
func (near) Constants() *param.Set       { return nil }
func (near) Check(*attention.Call) error { return nil }
func (near) Cost(s attention.Shape) headwise.Cost {
	pairs := float64(s.N) * float64(s.M)
	return headwise.Cost{FLOPs: 2 * pairs * float64(s.D+s.Dv), Bytes: 8 * pairs}
}

// distance returns how far key j is from query i, and whether the query sees it.
func distance(h *headwise.Head, i, j int) (float32, bool) {
	return float32(math.Abs(float64(i + h.Shift - j))), h.IsUnmasked(j) && (!h.Causal || j < h.VisibleKeys(i))
}

// Forward saves the weights for Backward.
func (m near) Forward(h *headwise.Head) {
	a, scale := m.slope.All()[0].Data[h.Head], float32(1/math.Sqrt(float64(h.Q.Cols)))
	n, keys := h.Q.Rows, h.K.Rows
	p := tensor.Mat{Data: h.SaveBuffer(n * keys), Rows: n, Cols: keys, Stride: keys}
	h.Multiply(p, h.Q, h.K, false, true, false)
	for i := range n {
		for j, s := range p.Row(i) {
			if d, sees := distance(h, i, j); sees {
				p.Row(i)[j] = s*scale - a*d
			} else {
				p.Row(i)[j] = float32(math.Inf(-1))
			}
		}
	}
	h.SoftmaxRows(p)
	h.Multiply(h.Out, p, h.V, false, false, false)
}

func (m near) Backward(h *headwise.Head, g *headwise.Grads) {
	scale := float32(1 / math.Sqrt(float64(h.Q.Cols)))
	n, keys := h.Q.Rows, h.K.Rows
	p := tensor.Mat{Data: h.Saved, Rows: n, Cols: keys, Stride: keys}
	ds := h.TakeScratch(n, keys) // of the scores; 0 where a query does not see a key
	h.Multiply(g.DV, p, g.DOut, true, false, false)
	h.Multiply(ds, g.DOut, h.V, false, true, false)
	h.SoftmaxRowsGrad(ds, p)
	for i := range n {
		for j, x := range ds.Row(i) {
			d, _ := distance(h, i, j)
			g.Params[0][h.Head] -= x * d
			ds.Row(i)[j] = x * scale
		}
	}
	h.Multiply(g.DQ, ds, h.K, false, false, false)
	h.Multiply(g.DK, ds, h.Q, true, false, false)
}

// A function of a whole head, with a learned parameter, becomes a mechanism.
func ExampleNew() {
	slope := new(param.Set)
	slope.New("slope", false, 1).Data[0] = math.Ln2 // the weight halves with each key
	m := headwise.New(near{slope})

	zeros := tensor.NewHeads(1, 1, 4, 2)
	c := &attention.Call{Q: zeros, K: zeros, V: tensor.HeadsOf([]float32{15, 0, 0, 0}, 1, 1, 4, 1), Causal: true}
	out, keep := tensor.NewHeads(1, 1, 4, 1), new(attention.Saved)
	if err := m.Forward(out, c, keep); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.2f\n", out.Data)

	// The derivative of the last output, 15·a³/(1+a+a²+a³) with a = exp(-slope).
	g := &attention.Grads{DQ: tensor.NewHeads(1, 1, 4, 2), DK: tensor.NewHeads(1, 1, 4, 2), DV: tensor.NewHeads(1, 1, 4, 1)}
	if err := m.Backward(g, tensor.HeadsOf([]float32{0, 0, 0, 1}, 1, 1, 4, 1), out, c, keep); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f\n", slope.All()[0].Grad)
	// Output:
	// [15.00 5.00 2.14 1.00]
	// [-2.2667]
}

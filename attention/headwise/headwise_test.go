package headwise

import (
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// noted gives each query the value of its key, times what a head saved, and notes what it was called with.
type noted struct {
	mu          sync.Mutex
	heads, back []Head
}

func (*noted) Traits() attention.Traits {
	return attention.Traits{Name: "noted", Causal: true}
}
func (*noted) Setting() string             { return "" }
func (*noted) Params() *param.Set          { return nil }
func (*noted) Constants() *param.Set       { return nil }
func (*noted) Check(*attention.Call) error { return nil }
func (*noted) Cost(attention.Shape) Cost   { return Cost{FLOPs: 8, Bytes: 4} }

func (x *noted) Forward(h *Head) {
	h.SaveBuffer(1)[0] = float(h.Head + 1)
	for i := range h.Out.Rows {
		for c := range h.Out.Row(i) {
			h.Out.Row(i)[c] = h.Saved[0] * h.V.Row(i + h.Shift)[c]
		}
	}
	x.mu.Lock()
	x.heads = append(x.heads, *h)
	x.mu.Unlock()
	h.UnseenQueries, h.Residual, h.ExactShare, h.Aux = 1, 2, 0.5, 3
	h.CountIllConditioned(0)
}

func (x *noted) Backward(h *Head, g *Grads) {
	x.mu.Lock()
	x.back = append(x.back, *h)
	x.mu.Unlock()
	g.Clear()
	for i := range g.DOut.Rows {
		for c, y := range g.DOut.Row(i) {
			g.DV.Row(i + h.Shift)[c] = h.Saved[0] * y
		}
	}
}

// What a call tells a Function arrives, and so does what the Function leaves for the caller and for
// Backward.
func TestFunctionsGetAndGiveHeads(t *testing.T) {
	x := &noted{}
	m := New(x)
	q, k := tensor.NewHeads(1, 2, 3, 2), tensor.NewHeads(1, 1, 4, 2)
	v := tensor.HeadsOf([]float{1, 2, 3, 4}, 1, 1, 4, 1)
	c := &attention.Call{Q: q, K: k, V: v, Causal: true}
	out, keep := tensor.NewHeads(1, 2, 3, 1), new(attention.Saved)
	if err := m.Forward(out, c, keep); err != nil {
		t.Fatal(err)
	}
	want := []float{2, 3, 4, 4, 6, 8}
	for i, y := range out.Data {
		if y != want[i] {
			t.Fatalf("outputs are %v, want %v", out.Data, want)
		}
	}
	if len(x.heads) != 2 || keep.UnseenCount != 2 || keep.Residual != 2 || keep.ExactShare != 0.5 || keep.Aux != 6 || keep.WeakCount != 2 {
		t.Errorf("%d heads left %+v", len(x.heads), keep)
	}
	for _, h := range x.heads {
		if h.Q.Rows != 3 || h.K.Rows != 4 || !h.Causal || h.Offset != 1 || h.Shift != 1 || h.KeyHead != 0 || h.KeyHeads != 1 || !h.NeedsBackward {
			t.Errorf("a head is %+v", h)
		}
	}
	g := &attention.Grads{DQ: tensor.NewHeads(1, 2, 3, 2), DK: tensor.NewHeads(1, 1, 4, 2), DV: tensor.NewHeads(1, 1, 4, 1)}
	if err := m.Backward(g, tensor.HeadsOf([]float{1, 1, 1, 1, 1, 1}, 1, 2, 3, 1), out, c, keep); err != nil {
		t.Fatal(err)
	}
	for j, y := range g.DV.Data {
		if want := []float{0, 3, 3, 3}; y != want[j] {
			t.Fatalf("gradients are %v, want %v", g.DV.Data, want)
		}
	}
	if len(x.back) != 2 || x.back[0].Out.Rows != 3 {
		t.Errorf("backward saw %+v", x.back)
	}
}

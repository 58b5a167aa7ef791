package headwise

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// recent is softmax over the query's block of size tokens and the block before. With
// growing set its states keep all keys.
type recent struct {
	block   int
	growing bool
	softmax *PatternSoftmax
}

func (r *recent) Traits() attention.Traits {
	return attention.Traits{Name: "recent", Positive: true, Causal: true}
}
func (r *recent) Setting() string             { return fmt.Sprint("recent ", r.block) }
func (r *recent) Params() *param.Set          { return nil }
func (r *recent) Constants() *param.Set       { return nil }
func (r *recent) Check(*attention.Call) error { return nil }
func (r *recent) Cost(s attention.Shape) Cost {
	return Cost{FLOPs: float64(4 * s.N * r.block * s.D)}
}

func (r *recent) Reach() (keys, period int) {
	if r.growing {
		return 0, 0
	}
	return 2 * r.block, r.block
}

func (r *recent) pairs(h *Head) *Pattern {
	p := NewPattern()
	lo, hi := p.AddPart(Range(0, h.Q.Rows), Range(0, h.K.Rows))
	for i := range lo {
		at := h.Offset + i
		lo[i], hi[i] = int32((at/r.block-1)*r.block), int32(at+1)
	}
	return p
}

func (r *recent) Forward(h *Head) {
	p := r.pairs(h)
	defer p.Release()
	r.softmax.Forward(h, h.SaveBuffer(h.Q.Rows), p)
}

func (r *recent) Backward(h *Head, g *Grads) {
	p := r.pairs(h)
	defer p.Release()
	g.Clear()
	r.softmax.Backward(h, g, h.Out, g.DOut, h.Saved, p)
}

// A state of a window answers as one that remembers everything, with bits that
// do not depend on pieces, merging, copies and snapshots, and does not grow.
func TestHeadRing(t *testing.T) {
	t.Run(check.Precision, headRingProblem)
}

func headRingProblem(t *testing.T) {
	const n = 60
	r := rand.New(rand.NewPCG(3, 4))
	c := &attention.Call{Q: calltest.Convert(calltest.Normal(r, 2, 4, n, 6)), K: calltest.Convert(calltest.Normal(r, 2, 2, n, 6)), V: calltest.Convert(calltest.Normal(r, 2, 2, n, 3)),
		Causal: true, KeyMask: make([]bool, 2*n), Rope: attention.NewRope(6, 100, 0, n)}
	for j := range c.KeyMask {
		c.KeyMask[j] = r.IntN(3) > 0
	}
	piece := func(i0, i1 int) *attention.Call {
		p := &attention.Call{Q: c.Q.Tokens(i0, i1), K: c.K.Tokens(i0, i1), V: c.V.Tokens(i0, i1), Rope: c.Rope.Slice(i0)}
		for b := range c.Q.B {
			p.KeyMask = append(p.KeyMask, c.KeyMask[b*n:][i0:i1]...)
		}
		return p
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range []int{1, 2, 3, 7, 40} {
		m := New(&recent{block, false, new(PatternSoftmax)})
		growing := New(&recent{block, true, new(PatternSoftmax)})
		start := func(m attention.Mechanism) attention.State {
			s, err := m.NewState(c.Shape())
			must(err)
			return s
		}
		outputs := func(n int) tensor.Heads { return calltest.Poisoned(2, 4, n, 3) }
		all, want := outputs(n), outputs(n)
		must(start(growing).Step(all, piece(0, n)))
		whole := start(m)
		size := whole.Bytes()
		must(whole.Step(want, piece(0, n)))
		ref := make([]float64, len(all.Data))
		for i, x := range all.Data {
			ref[i] = float64(x)
		}
		if e := check.ErrorRatio(want.Data, ref, check.SoftmaxLimits[float]().Output(10, check.MaxAbs(c.V.Data))); e > 1 {
			t.Errorf("block %d: the window is off by %.3g limits", block, e)
		}
		data, err := whole.AppendBinary(nil)
		must(err)
		for range 8 {
			x, y := r.IntN(n), r.IntN(n)
			x, y = min(x, y), max(x, y)
			a, b := start(m), start(m)
			must(a.Absorb(piece(0, x)))
			for i := x; i < y; i++ {
				must(b.Absorb(piece(i, i+1)))
			}
			must(a.Merge(b))
			saved, err := a.AppendBinary(nil)
			must(err)
			a.Reset()
			a, err = m.RestoreState(saved)
			must(err)
			got := outputs(n - y)
			a = a.Clone()
			for i := y; i < n; {
				k := min(i+1+r.IntN(5), n)
				must(a.Step(got.Tokens(i-y, k-y), piece(i, k)))
				i = k
			}
			for i := range 8 {
				for j := range n - y {
					if g, w := got.Head(i/4, i%4).Row(j), want.Head(i/4, i%4).Row(y+j); !slices.Equal(g, w) {
						t.Fatalf("block %d cut at %d and %d: token %d is %v, want %v", block, x, y, y+j, g, w)
					}
				}
			}
			again, err := a.AppendBinary(nil)
			must(err)
			if !bytes.Equal(again, data) {
				t.Errorf("block %d cut at %d and %d: the snapshot differs", block, x, y)
			}
			if a.Bytes() != size || a.Tokens() != n {
				t.Errorf("block %d: %d bytes after %d tokens, had %d", block, a.Bytes(), a.Tokens(), size)
			}
		}
		empty := outputs(2)
		must(start(m).Read(empty, piece(0, 2)))
		if check.MaxAbs(empty.Data) != 0 {
			t.Error("a query of an empty state is not zero")
		}
		if _, err := m.RestoreState(data[:len(data)-9]); err == nil {
			t.Error("a short snapshot is read")
		}
		if _, err := growing.RestoreState(data); err == nil {
			t.Error("a state that remembers everything reads a window's snapshot")
		}
	}
}

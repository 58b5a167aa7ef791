//go:build !float64

package factorised_test

import (
	"errors"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

func TestVanishingDenominatorsAreCounted(t *testing.T) {
	m := mechanismOf(t, attention.Spec{Name: "power", Scale: 1, Coef: []float64{0, 0, 0, 0, 1}, Positive: true})
	for _, x := range []struct {
		qk    float32 // both
		want  float32
		count int64
	}{{1e-4, 3, 0}, {1e-5, 0, 4}, {1e-6, 0, 4}, {0, 0, 4}} {
		for _, form := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
			c := alike(4, x.qk, x.qk, 3)
			c.Form = form
			out := tensor.NewHeads(1, 1, 4, 1)
			var keep *attention.Saved
			if form != attention.Step {
				keep = new(attention.Saved)
			}
			if err := m.Forward(out, c, keep); err != nil {
				t.Fatal(err)
			}
			for _, y := range out.Data {
				if !(math.Abs(float64(y-x.want)) < 1e-5) {
					t.Errorf("%v: rows of %g give %v, want %v", form, x.qk, out.Data, x.want)
					break
				}
			}
			if keep != nil && keep.WeakCount != x.count {
				t.Errorf("%v: rows of %g: %d are weak, want %d", form, x.qk, keep.WeakCount, x.count)
			}
			if keep == nil || x.count == 0 {
				continue
			}
			g := attention.Grads{DQ: tensor.NewHeads(1, 1, 4, 1), DK: tensor.NewHeads(1, 1, 4, 1), DV: tensor.NewHeads(1, 1, 4, 1)}
			if err := m.Backward(&g, c.V, out, c, keep); err != nil {
				t.Fatal(err)
			}
			for _, d := range []tensor.Heads{g.DQ, g.DK, g.DV} {
				if n, _ := attention.NonFinite(d); n > 0 {
					t.Errorf("%v: rows of %g: a gradient is %v", form, x.qk, d.Data)
				}
			}
		}
	}
}

func TestLargeFiniteOutputsAreNoError(t *testing.T) {
	m := mechanismOf(t, attention.Spec{Name: "softmax", Scale: 1, Exp: true, Positive: true})
	for _, form := range []attention.Form{attention.Direct, attention.Step} {
		c := alike(7, 1, 1, 3e38) // any two of them overflow when added
		c.Form = form
		for i := range c.K.Data {
			c.K.Data[i] = float32(200 * i)
		}
		out := tensor.NewHeads(1, 1, 7, 1)
		if err := m.Forward(out, c, nil); err != nil {
			t.Errorf("%v: %v: %v", form, out.Data, err)
		}
	}
}

func TestStateGoesOnAfterARowThatIsNotFinite(t *testing.T) {
	m := mechanismOf(t, attention.Spec{Name: "based", Scale: 1, Coef: []float64{1, 1, 0.5}, Positive: true})
	s, err := m.NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: 1, Dv: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range []float32{1, 1e30, 1} {
		c, out := alike(1, q, 1, 3), tensor.NewHeads(1, 1, 1, 1)
		err := s.Step(out, c)
		if odd := i == 1; errors.Is(err, attention.ErrNonFinite) != odd || !odd && err != nil {
			t.Errorf("token %d gives %v: %v", i, out.Data, err)
		}
	}
	if s.Tokens() != 3 {
		t.Errorf("the state has %d tokens", s.Tokens())
	}
}

func TestOverflowIsCountedOrAnError(t *testing.T) {
	m := mechanismOf(t, attention.Spec{Name: "based", Scale: 1, Coef: []float64{1, 1, 0.5}, Positive: true})
	for _, form := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
		c := alike(5, 1, 1, 3)
		c.Form = form
		for i := 2; i < 4; i++ {
			c.Q.Data[i] = 1e30
		}
		c.K.Data[3] = 1e20 // from here on all sums are beyond float32
		out := tensor.NewHeads(1, 1, 5, 1)
		err := m.Forward(out, c, nil)
		var bad *attention.NonFiniteError
		if !errors.As(err, &bad) || !errors.Is(err, attention.ErrNonFinite) || bad.Rows != 3 || bad.AllRows != 5 || bad.First != [3]int{0, 0, 2} {
			t.Errorf("%v: %v", form, err)
		}
		for i, x := range out.Data {
			if finite := i < 2; (x-x == 0) != finite || finite && math.Abs(float64(x)-3) > 1e-5 {
				t.Errorf("%v: o is %v", form, out.Data)
				break
			}
		}
		if form == attention.Step {
			continue
		}
		keep := new(attention.Saved)
		if err := m.Forward(out, c, keep); err != nil || keep.NonFinite != 3 || keep.NonFiniteAt != [3]int{0, 0, 2} {
			t.Errorf("%v: counts %d from %v on: %v", form, keep.NonFinite, keep.NonFiniteAt, err)
		}
		if err := m.Forward(out, alike(5, 1, 1, 3), keep); err != nil || keep.NonFinite != 0 {
			t.Errorf("%v: then counts %d: %v", form, keep.NonFinite, err)
		}
	}
}

// TestSumsBeyondTheRangeAreNoZero has a denominator of infinity below finite products
// with values: over it outputs would be 0.
func TestSumsBeyondTheRangeAreNoZero(t *testing.T) {
	m := mechanismOf(t, attention.Spec{Name: "power", Scale: 1, Coef: []float64{0, 0, 1}, Positive: true})
	for _, form := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
		c := alike(9, 1.5e9, 1e10, 1e-20)
		c.Form = form
		out := tensor.NewHeads(1, 1, 9, 1)
		err := m.Forward(out, c, nil)
		if x := out.Data[8]; x == x || !errors.Is(err, attention.ErrNonFinite) {
			t.Errorf("%v: the last output is %v: %v", form, x, err)
		}
	}
}

// TestScoresBeyondTheRangeAreNotUnseen has scores of minus infinity alone, where masks
// have them too.
func TestScoresBeyondTheRangeAreNotUnseen(t *testing.T) {
	m := mechanismOf(t, attention.Spec{Name: "softmax", Scale: 1, Exp: true, Positive: true})
	c := alike(3, -1e25, 1e25, 3)
	c.KeyMask = []bool{false, true, true}
	out := tensor.NewHeads(1, 1, 3, 1)
	keep := new(attention.Saved)
	if err := m.Forward(out, c, keep); err != nil || keep.UnseenCount != 1 || keep.NonFinite != 2 || keep.NonFiniteAt != [3]int{0, 0, 1} || out.Data[0] != 0 {
		t.Errorf("%v of %d unseen and %d rows that are not finite: %v", out.Data, keep.UnseenCount, keep.NonFinite, err)
	}
}

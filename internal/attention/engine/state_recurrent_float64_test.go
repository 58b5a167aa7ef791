//go:build float64

package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// The moments are plain sums of monomials, without the kernel's coefficients: moments
// of degree 0 count keys, moments of degree 1 sum keys.
func TestSumsHoldPlainMoments(t *testing.T) {
	const n = 32
	r := rand.New(rand.NewPCG(20, 21))
	c := &oracle.Call{Q: calltest.Normal(r, 1, 1, 1, 3), K: calltest.Normal(r, 1, 1, n, 3), V: calltest.Normal(r, 1, 1, n, 2)}
	call := calltest.NewCall(c)
	call.Chunk = 8
	st := newState(t, mechanismOf(t, "taylor", &oracle.Mechanism{Scale: 5, Coef: oracle.TaylorCoef(2)}), call)
	if err := st.Absorb(call); err != nil {
		t.Fatal(err)
	}
	head := st.Heads[0]
	var z, terms [10]float64 // 1, x1, x2, x3, x1x1, x1x2, x1x3, x2x2, x2x3, x3x3
	for j := range n {
		x := append([]float64{1}, c.K.Head(0, 0).Row(j)...)
		f := 0
		for a := range x {
			for b := a; b < len(x); b++ {
				z[f] += x[a] * x[b]
				terms[f] += max(x[a]*x[b], -x[a]*x[b])
				f++
			}
		}
	}
	for f, want := range z {
		if ratio := check.ErrorRatio(head.Moments.Z[f:][:1], []float64{want}, (8+math.Sqrt(n))*check.UnitRoundoff[float64]()*terms[f]); ratio > 1 {
			t.Errorf("moment %d is %v, want %v", f, head.Moments.Z[f], want)
		}
	}
}

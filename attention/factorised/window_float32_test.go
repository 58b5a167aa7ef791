//go:build !float64

package factorised

import (
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

// A kernel that its normalisation keeps positive may be negative where dropout enlarges scores.
// Rows are then weak where they are with a kernel that may be negative anyway.
func TestDropoutCountsWeakRowsOfBoundedKernels(t *testing.T) {
	plain := attention.Spec{Name: "bounded", Norm: attention.Bounded, Scale: 0.99, Coef: []float64{1, 1}, Positive: true}
	windowed := plain
	windowed.Window = &attention.Window{Width: 1, LogGamma: &param.Param{Name: "log_gamma", Shape: []int{1}, Data: []float32{-14}, Grad: make([]float32, 1)}}
	for _, s := range []attention.Spec{plain, windowed} {
		e, weak := mustNew(t, s), int64(0)
		s.Positive = false
		signed := mustNew(t, s)
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 34))
			c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 1, 40, 8), K: calltest.Normal(r, 1, 1, 40, 8), V: calltest.Normal(r, 1, 1, 40, 2), Causal: true})
			c.Drop = &attention.Drop{Kind: attention.TokenDrop, Rate: 0.7, Key: rng.New(seed)}
			_, keep := calltest.Forward(t, e, c, attention.Direct)
			_, want := calltest.Forward(t, signed, c, attention.Direct)
			found, err := e.Diagnose(c)
			if err != nil {
				t.Fatal(err)
			}
			if keep.WeakCount != want.WeakCount || found[0].WeakCount != want.WeakCount {
				t.Errorf("window %t, seed %d: %d weak rows, %d in the diagnosis, want %d", s.Window != nil, seed, keep.WeakCount, found[0].WeakCount, want.WeakCount)
			}
			weak += keep.WeakCount
			c.Drop = nil
			if _, keep := calltest.Forward(t, e, c, attention.Direct); keep.WeakCount != 0 {
				t.Errorf("window %t, seed %d: %d weak rows without dropout", s.Window != nil, seed, keep.WeakCount)
			}
		}
		if weak == 0 {
			t.Errorf("window %t: no row is weak", s.Window != nil)
		}
	}
}

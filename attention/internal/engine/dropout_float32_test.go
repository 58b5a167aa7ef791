//go:build !float64

package engine

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// A diagnosis has the denominators of Forward, of the numbers that dropout leaves.
func TestDiagnosisHasDropout(t *testing.T) {
	for _, kind := range []attention.DropKind{attention.TokenDrop, attention.ElementDrop, attention.ProductDrop} {
		r := rand.New(rand.NewPCG(32, 33))
		e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 1, 6, 4), K: calltest.Normal(r, 1, 1, 6, 4), V: calltest.Normal(r, 1, 1, 6, 2)})
		c.Drop = &attention.Drop{Kind: kind, Rate: 0.6}
		_, keep := calltest.Forward(t, e, c, attention.Direct)
		found, err := e.Diagnose(c)
		if err != nil {
			t.Fatal(err)
		}
		d, least := found[0], slices.MinFunc(keep.Den, func(a, b float32) int { return cmp.Compare(math.Abs(float64(a)), math.Abs(float64(b))) })
		if math.Abs(d.MinDen-float64(least)) > 1e-5*d.MaxCondition*math.Abs(d.MinDen) || d.WeakCount != keep.WeakCount {
			t.Errorf("%v: the least denominator is %v with %d weak rows, Forward has %v with %d", kind, d.MinDen, d.WeakCount, least, keep.WeakCount)
		}
	}
}

//go:build !float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// The form of a causal sequence does not go by its padding.
func TestPaddingChoosesNoForm(t *testing.T) {
	m, err := New("fastmax", Options{Heads: 1, Width: 32})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{60, 150, 300, 700} {
		long := &attention.Call{Causal: true, KeyLens: []int64{int64(n)}}
		for i, x := range []*tensor.Heads{&long.Q, &long.K, &long.V} {
			*x = tensor.NewHeads(1, 1, 1200, 32)
			for j := range x.Data {
				x.Data[j] = float32(rng.New(uint64(i)).Normal(uint64(j)))
			}
		}
		short := &attention.Call{Causal: true, Q: long.Q.Tokens(0, n), K: long.K.Tokens(0, n), V: long.V.Tokens(0, n)}
		if a, b := forward(t, m, long), forward(t, m, short); !sameHeads(a.o.Tokens(0, n), b.o) {
			t.Errorf("%d of 1200 tokens: padding changes the output", n)
		}
	}
}

//go:build float64

package factorised_test

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// The products of prepared rows are the scores: f of them, over its sum, is A. Keys
// that do not exist are zeros.
func TestPreparedRowsMakeWeights(t *testing.T) {
	const b, h, kv, n, d = 2, 4, 2, 9, 6
	draw := func(stream uint64, heads int) tensor.Heads {
		x := tensor.NewHeads(b, heads, n, d)
		for i := range x.Data {
			x.Data[i] = rng.New(7).Fold(stream).Normal(uint64(i))
		}
		return x
	}
	base := attention.Call{Q: draw(1, h), K: draw(2, kv), V: draw(3, kv), Causal: true}
	masked, turned := base, base
	masked.KeyLens = []int64{n, 6}
	turned.Rope = attention.NewRope(d, 100, 0, 64)
	for name, c := range map[string]*attention.Call{"plain": &base, "lengths": &masked, "rotated": &turned} {
		m, err := mechanism.New("fastmax", mechanism.Options{Set: map[string]string{"scale": "0.25"}})
		if err != nil {
			t.Fatal(err)
		}
		q, k, err := factorised.Prepared(m, c)
		if err != nil {
			t.Fatal(err)
		}
		a := tensor.Mat{Data: make([]float64, n*n), Rows: n, Cols: n, Stride: n}
		for row := range b {
			exist := n
			if c.KeyLens != nil {
				exist = int(c.KeyLens[row])
			}
			for head := range h {
				if err := m.Weights(a, c, row, head, 0, n); err != nil {
					t.Fatal(err)
				}
				for i := range n {
					var w [n]float64
					sum := 0.0
					for j := range min(i+1, exist) {
						s := 0.0
						for e, x := range q.Head(row, head).Row(i) {
							s += x * k.Head(row, head/2).Row(j)[e]
						}
						w[j] = 1 + s + s*s/2
						sum += w[j]
					}
					for j := range n {
						if math.Abs(a.Row(i)[j]-w[j]/sum) > 1e-12 {
							t.Fatalf("%s: weight %d of query %d of head %d is %g, by prepared rows %g", name, j, i, head, a.Row(i)[j], w[j]/sum)
						}
					}
				}
			}
			for j := exist; j < n; j++ {
				for _, x := range k.Head(row, 0).Row(j) {
					if x != 0 {
						t.Fatalf("%s: key %d does not exist and has %g", name, j, x)
					}
				}
			}
		}
	}
	whole, err := mechanism.New("local", mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := factorised.Prepared(whole, &base); err == nil {
		t.Error("what computes whole heads has prepared rows")
	}
}

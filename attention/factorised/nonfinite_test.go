package factorised_test

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/tensor"
)

// alike is a causal call of n tokens of width 1 that are all q, k and v.
func alike(n int, q, k, v tensor.Float) *attention.Call {
	c := &attention.Call{
		Q: tensor.NewHeads(1, 1, n, 1), K: tensor.NewHeads(1, 1, n, 1), V: tensor.NewHeads(1, 1, n, 1), Causal: true,
	}
	for i := range n {
		c.Q.Data[i], c.K.Data[i], c.V.Data[i] = q, k, v
	}
	return c
}

func mechanismOf(t *testing.T, s attention.Spec) attention.Mechanism {
	t.Helper()
	m, err := factorised.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

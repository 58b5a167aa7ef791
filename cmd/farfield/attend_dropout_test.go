package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/oracle"
)

// Masks of a file give the textbook's numbers, and drawn ones follow the seed.
func TestAttendDropout(t *testing.T) {
	const h, n, d = 2, 5, 3
	q, k, v, do := random(1, h*n*d), random(2, n*d), random(3, n*d), random(4, h*n*d)
	bits := func(n int) ([]uint8, []float64) {
		mask, factors := make([]uint8, n), make([]float64, n)
		for i := range mask {
			if i%3 > 0 {
				mask[i], factors[i] = 1, 4
			}
		}
		return mask, factors
	}
	maskQ, factorQ := bits(h * n * d)
	maskK, factorK := bits(n * d)
	call := &oracle.Call{
		Q: oracle.HeadsOf(wide(q), 1, h, n, d), K: oracle.HeadsOf(wide(k), 1, 1, n, d), V: oracle.HeadsOf(wide(v), 1, 1, n, d),
		Causal: true, Drop: &oracle.Drop{Q: factorQ, K: factorK},
	}
	want, grads := fastmaxBook.Forward(call), fastmaxBook.Backward(call, oracle.HeadsOf(wide(do), 1, h, n, d))

	out := filepath.Join(t.TempDir(), "out.npz")
	in := written(t, "in.npz",
		made(t, "q", q, h, n, d), made(t, "k", k, 1, n, d), made(t, "v", v, 1, n, d), made(t, "do", do, h, n, d),
		made(t, "mask_q1", maskQ, h, n, d), made(t, "mask_k1", maskK, 1, n, d), made(t, "rate", []float64{0.75}, 1))
	for _, form := range []string{"direct", "linear", "step"} {
		works(t, "attend", "--mechanism", "fastmax", "--causal", "--dropout", "standard", "--form", form, "--grad", in, out)
		got := read(t, out)
		within := tolerancesOf(form, 2, d, call, want, do)
		near(t, form+" o", got["o"], []int{h, n, d}, want.O.Data, within.output())
		near(t, form+" dq", got["dq"], []int{h, n, d}, grads.DQ.Data, within.gradient(grads.DQ.Data, 1))
		near(t, form+" dk", got["dk"], []int{1, n, d}, grads.DK.Data, within.gradient(grads.DK.Data, 1))
	}

	drawn := func(args ...string) []float64 {
		works(t, append(append([]string{"attend", "--mechanism", "fastmax", "--dropout", "1d"}, args...), in, out)...)
		x, err := read(t, out)["o"].Float64()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	one := drawn("--rate", "0.5")
	if !slices.Equal(one, drawn("--rate", "0.5", "--seed", "1")) || slices.Equal(one, drawn("--rate", "0.5", "--seed", "2")) {
		t.Error("masks do not follow the seed")
	}

	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"--dropout", "2d", "--rate", "0.5"}, `kind is "2d"`},
		{[]string{"--rate", "0.5"}, "--rate: needs --dropout"},
		{[]string{"--dropout", "1d", "--rate", "1"}, "dropout: rate is 1"},
	} {
		refuses(t, x.want, append(append([]string{"attend", "--mechanism", "fastmax"}, x.args...), in, out)...)
	}
}

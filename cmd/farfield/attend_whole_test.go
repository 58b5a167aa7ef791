package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// TestAttendWhole has mechanisms that compute whole heads take their parameters,
// and what these say of settings, from the file.
func TestAttendWhole(t *testing.T) {
	const h, n, m, d, dv, rows, rank = 2, 4, 7, 3, 2, 9, 5
	q, k, v, do := random(1, h*n*d), random(2, h*m*d), random(3, h*m*dv), random(4, h*n*dv)
	e, f, r := random(5, rows*rank), random(6, rows*rank), random(7, d)
	mixed := func(e, f []float64) oracle.HeadMatrix { return oracle.NewLinformer(e, f, rows, rank, false, true) }
	for _, x := range []struct {
		name  string
		given []*array.Array
		whole func(p [][]float64) oracle.HeadMatrix // of the numbers that are given
	}{
		{"linformer", []*array.Array{made(t, "E", e, rows, rank), made(t, "F", f, rows, rank)}, func(p [][]float64) oracle.HeadMatrix { return mixed(p[0], p[1]) }},
		{"linformer", []*array.Array{made(t, "E", e, rows, rank)}, func(p [][]float64) oracle.HeadMatrix { return mixed(p[0], p[0]) }},
		{"fourier", []*array.Array{made(t, "R", r, d)}, func(p [][]float64) oracle.HeadMatrix { return oracle.NewFourier(p[0], 0, false) }},
		{"fourier", []*array.Array{made(t, "R", r[:1])}, func(p [][]float64) oracle.HeadMatrix { return oracle.NewFourier(p[0], 0, false) }},
	} {
		in := append([]*array.Array{made(t, "q", q, h, n, d), made(t, "k", k, h, m, d), made(t, "v", v, h, m, dv), made(t, "do", do, h, n, dv)}, x.given...)
		out := filepath.Join(t.TempDir(), "out.npz")
		works(t, "attend", "--mechanism", x.name, "--grad", written(t, "in.npz", in...), out)
		got := read(t, out)
		call := &oracle.Call{
			Q: oracle.HeadsOf(wide(q), 1, h, n, d), K: oracle.HeadsOf(wide(k), 1, h, m, d), V: oracle.HeadsOf(wide(v), 1, h, m, dv),
		}
		inputs := [][]float64{call.Q.Data, call.K.Data, call.V.Data}
		for _, p := range x.given {
			numbers, err := p.Float64()
			if err != nil {
				t.Fatal(err)
			}
			inputs = append(inputs, numbers)
		}
		outputs := func() []float64 { return x.whole(inputs[3:]).Forward(call).O.Data }
		want := outputs()
		// How far outputs move with inputs, in parts of the inputs' own movement (docs/numerics.md).
		const nudge = 0x1p-24
		for i, list := range inputs {
			for j := range list {
				list[j] *= 1 + nudge*float64(1-(i+j)%2*2)
			}
		}
		moved := 0.0
		for i, y := range outputs() {
			moved = max(moved, math.Abs(y-want[i])/nudge)
		}
		within := check.HeadMatrixLimits[float32](n+m+d).Output(1, moved+check.MaxAbs(call.V.Data)+check.MaxAbs(want))
		near(t, x.name+" o", got["o"], []int{h, n, dv}, want, within)
		for _, p := range x.given {
			if g := got["d_"+p.Name]; g == nil || len(g.Shape) != len(p.Shape) {
				t.Errorf("%s: d_%s is %v, its parameter has shape %v", x.name, p.Name, g, p.Shape)
			}
		}
		if len(got) != 4+len(x.given) {
			t.Errorf("%s: %d arrays are written", x.name, len(got))
		}
	}
	file := written(t, "in.npz", made(t, "q", q, h, n, d), made(t, "k", k, h, m, d), made(t, "v", v, h, m, dv), made(t, "E", e[:25], 5, 5))
	refuses(t, "k: a sequence has 7 tokens, E has rows for 5", "attend", "--mechanism", "linformer", file, filepath.Join(t.TempDir(), "out.npz"))
	refuses(t, "causal: linformer has no causal form", "attend", "--mechanism", "linformer", "--causal", file, filepath.Join(t.TempDir(), "out.npz"))
	_, text, _ := command(t, "attend", "--mechanism", "linformer", "--help")
	if !strings.Contains(text, "parameter E (L,r)") {
		t.Errorf("the help does not list the parameters:\n%s", text)
	}
}

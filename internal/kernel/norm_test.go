package kernel

import (
	"math"
	"slices"
	"testing"
)

func TestLayerNorm(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testLayerNorm[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testLayerNorm[float64]) })
}

func testLayerNorm[T Float](t *testing.T, k *Table[T]) {
	const eps = 1e-5
	r, u := source(), unit[T]()+unit[float64]()
	for _, n := range sizes[1:] {
		for _, biased := range []bool{false, true} {
			x, gain, dst := guard[T](n, 1).random(r), guard[T](n, 2).random(r), guard[T](n, 3)
			var bias []T
			if biased {
				bias = guard[T](n, 5).random(r).data
			}
			stats := guard[T](2, 6)
			k.LayerNorm(dst.data, n, x.data, n, 1, n, gain.data, bias, stats.data, eps)
			mean, rstd := stats.data[0], stats.data[1]
			dst.intact(t, "LayerNorm")
			stats.intact(t, "LayerNorm")

			var m, v, most float64
			for _, a := range x.data {
				m += float64(a) / float64(n)
				most = max(most, math.Abs(float64(a)))
			}
			for _, a := range x.data {
				v += (float64(a) - m) * (float64(a) - m) / float64(n)
			}
			s := 1 / math.Sqrt(v+eps)
			// A sum of n terms has n roundings; one row of a single element
			// has no variance and magnifies the rest by rstd.
			bound := 2 * float64(n+8) * u
			if !near(float64(mean), m, bound*most) || !near(float64(rstd), s, bound*s*(1+most*most*s*s)) {
				t.Fatalf("n=%d: mean %v, rstd %v, want %v, %v", n, mean, rstd, m, s)
			}
			for i, got := range dst.data {
				want := (float64(x.data[i]) - m) * s * float64(gain.data[i])
				size := (most + math.Abs(m)) * s * (1 + most*most*s*s) * math.Abs(float64(gain.data[i]))
				if biased {
					want += float64(bias[i])
					size += math.Abs(float64(bias[i]))
				}
				if !near(float64(got), want, bound*size) {
					t.Fatalf("n=%d biased=%v: dst[%d] = %v, want %v", n, biased, i, got, want)
				}
			}
		}
	}
}

func TestLayerNormGrad(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testLayerNormGrad[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testLayerNormGrad[float64]) })
}

// The gradient equals the formula with the given mean and rstd, even if they are not the statistics of
// the row.
func testLayerNormGrad[T Float](t *testing.T, k *Table[T]) {
	const mean, rstd = 0.25, 1.5
	r, u := source(), unit[T]()+unit[float64]()
	for _, n := range sizes[1:] {
		for _, nils := range []bool{false, true} {
			dy, x, gain := guard[T](n, 1).random(r).data, guard[T](n, 2).random(r).data, guard[T](n, 3).random(r).data
			dx, dgain, dbias := guard[T](n, 4), guard[T](n, 5).random(r), guard[T](n, 6).random(r)
			gain0, bias0 := slices.Clone(dgain.data), slices.Clone(dbias.data)
			clear(dx.data)
			if stats := []T{mean, rstd}; nils {
				k.LayerNormGrad(dx.data, n, nil, nil, dy, n, x, n, 1, n, gain, stats)
			} else {
				k.LayerNormGrad(dx.data, n, dgain.data, dbias.data, dy, n, x, n, 1, n, gain, stats)
			}
			for _, g := range []*guarded[T]{dx, dgain, dbias} {
				g.intact(t, "LayerNormGrad")
			}
			if nils {
				if !same(dgain.data, gain0) || !same(dbias.data, bias0) {
					t.Fatal("nil gradients were written")
				}
			}
			var s1, s2, size float64
			for i := range dy {
				h, d := (float64(x[i])-mean)*rstd, float64(dy[i])*float64(gain[i])
				s1, s2 = s1+d, s2+d*h
				size += math.Abs(d) * (1 + math.Abs(h))
			}
			s1, s2, size = s1/float64(n), s2/float64(n), size/float64(n)
			for i := range dy {
				h, d := (float64(x[i])-mean)*rstd, float64(dy[i])*float64(gain[i])
				want := rstd * (d - s1 - h*s2)
				bound := float64(n+8) * u * rstd * (math.Abs(d) + size*(1+math.Abs(h)))
				if !near(float64(dx.data[i]), want, bound) {
					t.Fatalf("n=%d: dx[%d] = %v, want %v", n, i, dx.data[i], want)
				}
				if nils {
					continue
				}
				p := float64(dy[i]) * h
				if want := float64(gain0[i]) + p; !near(float64(dgain.data[i]), want, 4*u*(math.Abs(p)+math.Abs(want)+math.Abs(float64(dy[i])))) {
					t.Fatalf("n=%d: dgain[%d] = %v, want %v", n, i, dgain.data[i], want)
				}
				if want := float64(bias0[i]) + float64(dy[i]); !near(float64(dbias.data[i]), want, u*math.Abs(want)) {
					t.Fatalf("n=%d: dbias[%d] = %v, want %v", n, i, dbias.data[i], want)
				}
			}
		}
	}
}

func TestAdamW(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testAdamW[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testAdamW[float64]) })
}

func testAdamW[T Float](t *testing.T, k *Table[T]) {
	r, u := source(), unit[T]()+unit[float64]()
	s := &AdamWStep[T]{Rate: 0.01, Beta1: 0.875, Beta2: 0.96875, Eps: 1e-8, Decay: 0.1, Correct1: 4, Correct2: 8, GradScale: 0.5}
	for _, n := range sizes {
		w, g, m, v := guard[T](n, 1).random(r), guard[T](n, 2).random(r), guard[T](n, 3).random(r), guard[T](n, 4).random(r)
		for i := range v.data {
			v.data[i] *= v.data[i]
		}
		w0, g0, m0, v0 := slices.Clone(w.data), slices.Clone(g.data), slices.Clone(m.data), slices.Clone(v.data)
		k.AdamW(w.data, g.data, m.data, v.data, s)
		for _, x := range []*guarded[T]{w, g, m, v} {
			x.intact(t, "AdamW")
		}
		if !same(g.data, g0) {
			t.Fatal("the gradient was changed")
		}
		for i := range n {
			d := 0.5 * float64(g0[i])
			wantM := 0.875*float64(m0[i]) + 0.125*d
			wantV := 0.96875*float64(v0[i]) + 0.03125*d*d
			step := 4*wantM/(math.Sqrt(8*wantV)+float64(s.Eps)) + float64(s.Decay)*float64(w0[i])
			wantW := float64(w0[i]) - float64(s.Rate)*step
			size := math.Abs(float64(m0[i])) + math.Abs(d)
			if !near(float64(m.data[i]), wantM, 4*u*size) {
				t.Fatalf("n=%d: m[%d] = %v, want %v", n, i, m.data[i], wantM)
			}
			if !near(float64(v.data[i]), wantV, 5*u*wantV) {
				t.Fatalf("n=%d: v[%d] = %v, want %v", n, i, v.data[i], wantV)
			}
			bound := 12 * u * (math.Abs(float64(w0[i])) + float64(s.Rate)*4*size/math.Sqrt(8*wantV))
			if !near(float64(w.data[i]), wantW, bound) {
				t.Fatalf("n=%d: w[%d] = %v, want %v", n, i, w.data[i], wantW)
			}
		}
	}
}

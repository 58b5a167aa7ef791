package kernel

import (
	"math"
	"slices"
	"testing"
)

// runsOf returns runs of some features of rows: runs of one and of more than four features, including
// factors of the same run.
func runsOf(rows int) []Run {
	n := int32(rows)
	return []Run{{0, 0, n}, {1, 1, n - 1}, {n - 1, 0, 1}, {n - 1, n - 1, 1}, {0, n / 2, n - n/2}}
}

func TestFeatures(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testFeatures[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testFeatures[float64]) })
}

// Features, their sums over tokens and over features, and the gradients of their factors equal the
// formulas. Results for a token have the same bits alone.
func testFeatures[T Float](t *testing.T, k *Table[T]) {
	r, u := source(), unit[T]()+unit[float64]()
	for _, rows := range []int{2, 3, 7, 18} {
		runs := runsOf(rows)
		count, _, _ := countFeatures(runs)
		for _, n := range []int{1, 15, 16, 17, 33, 64, 67, 131} {
			ld := n + 5
			x, p := matrix[T](r, rows, n, ld), matrix[T](r, rows, n, ld)
			w, z, y := guard[T](count, 1).random(r).data, guard[T](count, 1).random(r).data, guard[T](n, 1).random(r).data
			dst, sums := guard[T]((count-1)*ld+n, 1), guard[T](count, 1)
			k.FeatureSums(dst.data, runs, p.data, x.data, ld, y, sums.data)
			dst.intact(t, "FeatureSums")
			sums.intact(t, "FeatureSums")
			plain := slices.Clone(dst.data)

			weighted, den := guard[T]((count-1)*ld+n, 1), guard[T](n, 1).random(r)
			before := slices.Clone(den.data)
			k.FeatureDots(weighted.data, runs, p.data, x.data, ld, w, z, den.data)
			weighted.intact(t, "FeatureDots")
			den.intact(t, "FeatureDots")

			// d has one row per feature, and dp is not dx.
			d, dx, dp := matrix[T](r, count, n, ld), matrix[T](r, rows, n, ld), matrix[T](r, rows, n, ld)
			dx0, dp0 := slices.Clone(dx.data), slices.Clone(dp.data)
			k.FeatureGrad(dx.data, dp.data, d.data, runs, p.data, x.data, ld, w, z, y)
			dx.intact(t, "FeatureGrad")
			dp.intact(t, "FeatureGrad")

			sum, sumSize := make([]float64, count), make([]float64, count)
			for i := range n {
				dens, denSize := float64(before[i]), math.Abs(float64(before[i]))
				gx, gp := wide(column(dx0, ld, rows, i)), wide(column(dp0, ld, rows, i))
				size := 0.0
				f := 0
				for _, run := range runs {
					for c := run.X; c < run.X+run.N; c++ {
						a, b := p.data[int(run.P)*ld+i], x.data[int(c)*ld+i]
						if got := plain[f*ld+i]; got != a*b {
							t.Fatalf("rows=%d n=%d: feature %d of token %d is %v, want %v", rows, n, f, i, got, a*b)
						}
						if got := weighted.data[f*ld+i]; got != w[f]*(a*b) {
							t.Fatalf("rows=%d n=%d: weighted feature %d of token %d is %v, want %v", rows, n, f, i, got, w[f]*(a*b))
						}
						sum[f] += float64(a*b) * float64(y[i])
						sumSize[f] += math.Abs(float64(a*b) * float64(y[i]))
						dens += float64(z[f]) * float64(w[f]*(a*b))
						denSize += math.Abs(float64(z[f]) * float64(w[f]*(a*b)))
						g := float64(w[f]) * (float64(d.data[f*ld+i]) + float64(z[f])*float64(y[i]))
						most := math.Abs(float64(w[f])) * (math.Abs(float64(d.data[f*ld+i])) + math.Abs(float64(z[f])*float64(y[i])))
						gx[c] += g * float64(a)
						gp[run.P] += g * float64(b)
						size += most * (math.Abs(float64(a)) + math.Abs(float64(b)))
						f++
					}
				}
				if got := float64(den.data[i]); !near(got, dens, float64(count)*u*denSize) {
					t.Fatalf("rows=%d n=%d: token %d sums to %v, want %v", rows, n, i, got, dens)
				}
				for c := range gx {
					if got := float64(dx.data[c*ld+i]); !near(got, gx[c], float64(count)*u*(size+math.Abs(gx[c]))) {
						t.Fatalf("rows=%d n=%d: dx[%d,%d] = %v, want %v", rows, n, c, i, got, gx[c])
					}
					if got := float64(dp.data[c*ld+i]); !near(got, gp[c], float64(count)*u*(size+math.Abs(gp[c]))) {
						t.Fatalf("rows=%d n=%d: dp[%d,%d] = %v, want %v", rows, n, c, i, got, gp[c])
					}
				}
				// The token alone.
				px, xx, phi := column(p.data, ld, rows, i), column(x.data, ld, rows, i), make([]T, count)
				one := []T{before[i]}
				k.FeatureDots(phi, runs, px, xx, 1, w, z, one)
				if !same(phi, column(weighted.data, ld, count, i)) || one[0] != den.data[i] {
					t.Fatalf("rows=%d n=%d: token %d has other bits alone", rows, n, i)
				}
				ex, ep := column(dx0, ld, rows, i), column(dp0, ld, rows, i)
				k.FeatureGrad(ex, ep, column(d.data, ld, count, i), runs, px, xx, 1, w, z, y[i:i+1])
				if !same(ex, column(dx.data, ld, rows, i)) || !same(ep, column(dp.data, ld, rows, i)) {
					t.Fatalf("rows=%d n=%d: the gradient of token %d has other bits alone", rows, n, i)
				}
			}
			for f, got := range sums.data {
				if !near(float64(got), sum[f], float64(n+4)*u*sumSize[f]) {
					t.Fatalf("rows=%d n=%d: feature %d sums to %v, want %v", rows, n, f, got, sum[f])
				}
			}

			// One matrix takes the gradient of both factors.
			both := slices.Clone(dx0)
			k.FeatureGrad(both, both, d.data, runs, x.data, x.data, ld, w, z, y)
			dx1, zero := slices.Clone(dx0), make([]T, len(dx0))
			k.FeatureGrad(dx1, zero, d.data, runs, x.data, x.data, ld, w, z, y)
			for i := range n {
				for c := range rows {
					want := float64(dx1[c*ld+i]) + float64(zero[c*ld+i])
					if got := float64(both[c*ld+i]); !near(got, want, 64*float64(count)*u*(1+math.Abs(want))) {
						t.Fatalf("rows=%d n=%d: in one matrix [%d,%d] = %v, want %v", rows, n, c, i, got, want)
					}
				}
			}
		}
	}
}

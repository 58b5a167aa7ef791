package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// rowCounts are the numbers of rows of a call.
var rowCounts = []int{0, 1, 2, 3, 5, 12}

// span returns the length of rows of n elements, rs apart.
func span(rows, rs, n int) int {
	if rows == 0 {
		return 0
	}
	return (rows-1)*rs + n
}

// oddRows returns guarded rows, rs apart, with special numbers among others.
func oddRows[T Float](rows, rs, n, skip int, special bool) *guarded[T] {
	r := source()
	x := guard[T](span(rows, rs, n), skip)
	x.random(r)
	odd := []T{T(math.NaN()), T(math.Inf(1)), T(math.Inf(-1)), 0, T(math.Copysign(0, -1)), 1e30}
	if special {
		for i := skip; i < len(x.data); i += 7 {
			x.data[i] = odd[i%len(odd)]
		}
	}
	// What lies between rows is no part of them.
	for i := range x.data {
		if i%max(rs, 1) >= n {
			x.data[i] = mark[T]()
		}
	}
	return x
}

// A call for many rows has the bits of calls row by row, and changes nothing else.
func TestManyRows(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testManyRows[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testManyRows[float64]) })
}

func testManyRows[T Float](t *testing.T, k *Table[T]) {
	const eps = 1e-5
	for _, n := range sizes {
		for _, rows := range rowCounts {
			for _, special := range []bool{false, true} {
				drs, xrs, yrs := n+5, n+3, n
				make3 := func() (d, x, y *guarded[T]) {
					return oddRows[T](rows, drs, n, 1, false), oddRows[T](rows, xrs, n, 2, special), oddRows[T](rows, yrs, n, 3, special)
				}
				check := func(name string, got *guarded[T], want []T) {
					t.Helper()
					name = fmt.Sprintf("%s of %d×%d special=%v", name, rows, n, special)
					got.intact(t, name)
					if !same(got.data, want) {
						t.Fatalf("%s differs from row by row", name)
					}
				}
				row := func(x []T, rs, r int) []T { return x[r*rs:][:n:n] }

				d, x, y := make3()
				one := oddRows[T](1, n, n, 5, special)
				want := slices.Clone(d.data)
				for r := range rows {
					k.Add(row(want, drs, r), row(x.data, xrs, r), row(y.data, yrs, r))
				}
				k.AddRows(d.data, drs, x.data, xrs, y.data, yrs, rows, n)
				check("AddRows", d, want)
				for r := range rows {
					k.Add(row(want, drs, r), row(x.data, xrs, r), one.data)
				}
				k.AddRows(d.data, drs, x.data, xrs, one.data, 0, rows, n)
				check("AddRows of one", d, want)
				all, want := guard[T](rows*n, 4), make([]T, rows*n)
				k.Add(want, y.data, y.data)
				k.AddRows(all.data, n, y.data, n, y.data, n, rows, n)
				check("AddRows without gaps", all, want)
				want = slices.Clone(x.data)
				for r := range rows {
					k.Add(row(want, xrs, r), row(want, xrs, r), row(y.data, yrs, r))
				}
				got := oddRows[T](rows, xrs, n, 2, special)
				k.AddRows(got.data, xrs, got.data, xrs, y.data, yrs, rows, n)
				check("AddRows with dst = x", got, want)
				want = slices.Clone(y.data)
				for r := range rows {
					k.Add(row(want, yrs, r), row(x.data, xrs, r), row(want, yrs, r))
				}
				got = oddRows[T](rows, yrs, n, 3, special)
				k.AddRows(got.data, yrs, x.data, xrs, got.data, yrs, rows, n)
				check("AddRows with dst = y", got, want)

				want = slices.Clone(one.data)
				for r := range rows {
					k.Add(want, want, row(x.data, xrs, r))
				}
				k.SumRows(one.data, x.data, xrs, rows)
				check("SumRows", one, want)

				dots := guard[T](rows, 1)
				want = make([]T, rows)
				for r := range want {
					want[r] = k.Dot(row(x.data, xrs, r), row(y.data, yrs, r))
				}
				k.RowDots(dots.data, x.data, xrs, y.data, yrs, n)
				check("RowDots", dots, want)
				if rows > 0 {
					for r := range want {
						want[r] = k.Dot(row(x.data, xrs, r), row(y.data, yrs, 0))
					}
					k.RowDots(dots.data, x.data, xrs, y.data, 0, n)
					check("RowDots with one", dots, want)
				}

				gain, bias := oddRows[T](1, n, n, 6, false).data, oddRows[T](1, n, n, 7, special).data
				stats := guard[T](2*rows, 2)
				for _, bias := range [][]T{bias, nil} {
					want = slices.Clone(d.data)
					wantStats := make([]T, 2*rows)
					for r := range rows {
						k.LayerNorm(row(want, drs, r), n, row(x.data, xrs, r), n, 1, n, gain, bias, wantStats[2*r:], eps)
					}
					k.LayerNorm(d.data, drs, x.data, xrs, rows, n, gain, bias, stats.data, eps)
					check("LayerNorm", d, want)
					check("stats of LayerNorm", stats, wantStats)
					in := oddRows[T](rows, xrs, n, 2, special)
					want = slices.Clone(in.data)
					for r := range rows {
						copy(row(want, xrs, r), row(d.data, drs, r))
					}
					k.LayerNorm(in.data, xrs, in.data, xrs, rows, n, gain, bias, stats.data, eps)
					check("LayerNorm with dst = x", in, want)
				}

				for which := range 4 {
					d, x, y = make3()
					dgain, dbias := oddRows[T](1, n, n, 8, false), oddRows[T](1, n, n, 9, false)
					wantGain, wantBias := slices.Clone(dgain.data), slices.Clone(dbias.data)
					want, scratch := slices.Clone(d.data), make([]T, n)
					of := func(bit int, x []T) []T {
						if which&bit == 0 {
							return nil
						}
						return x
					}
					for r := range rows {
						clear(scratch)
						k.LayerNormGrad(scratch, n, of(1, wantGain), of(2, wantBias), row(y.data, yrs, r), n, row(x.data, xrs, r), n, 1, n, gain, stats.data[2*r:])
						k.Add(row(want, drs, r), row(want, drs, r), scratch)
					}
					k.LayerNormGrad(d.data, drs, of(1, dgain.data), of(2, dbias.data), y.data, yrs, x.data, xrs, rows, n, gain, stats.data)
					check("LayerNormGrad", d, want)
					check("dgain of LayerNormGrad", dgain, wantGain)
					check("dbias of LayerNormGrad", dbias, wantBias)
				}
				_, x0, y0 := make3()
				if !same(x.data, x0.data) || !same(y.data, y0.data) {
					t.Fatalf("%d×%d: an input was changed", rows, n)
				}
			}
		}
	}
}

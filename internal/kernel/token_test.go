package kernel

import (
	"fmt"
	"slices"
	"testing"
)

// Mix equals Block step by step, and its total equals an additional column.
func TestMix(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testMix[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testMix[float64]) })
}

func testMix[T Float](t *testing.T, k *Table[T]) {
	r := source()
	for _, n := range []int{16, 32, 48, 64, 80, 176} {
		for _, rows := range []int{0, 1, 3, 4, 5, 24, 48, 67} {
			for _, step := range []int{1, 6, 24, 100} {
				name := fmt.Sprintf("n=%d rows=%d step=%d", n, rows, step)
				brs := n + 3
				a, z := guard[T](rows, 1).random(r).data, guard[T](rows, 2).random(r).data
				b, c := matrix[T](r, rows, n, brs).data, guard[T](n, 3).random(r)
				want := slices.Clone(c.data)
				column, last := make([]T, rows*Lanes), make([]T, Lanes)
				for p := range rows {
					column[p*Lanes] = z[p]
				}
				last[0] = 0.25
				for p := 0; p < rows; p += step {
					depth := min(step, rows-p)
					k.Block(1, n, depth, a[p:], 0, 1, b[p*brs:], brs, want, 0, true)
					k.Block(1, Lanes, depth, a[p:], 0, 1, column[p*Lanes:], Lanes, last, 0, true)
				}
				before := slices.Clone(c.data)
				got := k.Mix(c.data, a, step, b, brs, z, 0.25)
				c.intact(t, name)
				if !same(c.data, want) || got != last[0] {
					t.Fatalf("%s: differs from Block", name)
				}
				copy(c.data, before)
				if got := k.Mix(c.data, a, step, b, brs, nil, 0.25); got != 0.25 || !same(c.data, want) {
					t.Fatalf("%s: differs without a total", name)
				}
			}
		}
	}
}

// Renew equals Block, PolyRows and Mix on chunks of one token: weight, weighted value plus the sums
// before, and updated sums.
func TestRenew(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testRenew[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testRenew[float64]) })
}

func testRenew[T Float](t *testing.T, k *Table[T]) {
	for _, n := range []int{16, 32, 48, 64, 80} {
		for _, rows := range []int{1, 3, 4, 5, 24, 67} {
			for _, count := range []int{1, 2, 5} {
				testRenewTokens(t, k, count, n, rows, false)
				testRenewTokens(t, k, count, n, rows, true)
			}
		}
	}
	k.Renew(1, 16, 0, nil, 0, nil, nil, nil, 0, nil, 0, nil, 0, nil, 0, 1, 1, nil, nil)
	k.Renew(0, 16, 3, nil, 0, nil, nil, nil, 0, nil, 0, nil, 0, nil, 0, 1, 1, nil, nil)
}

// testRenewTokens uses one state per token, or one state for all.
func testRenewTokens[T Float](t *testing.T, k *Table[T], count, n, rows int, one bool) {
	r := source()
	name := fmt.Sprintf("n=%d rows=%d count=%d one=%v", n, rows, count, one)
	ars, yrs, crs, brs := rows+2, n+1, n+5, n+3
	state := (rows-1)*brs + n // and z behind it
	next, states := state+rows+7, count
	if one {
		next, states = 0, 1
	}
	a, q, x := guard[T]((count-1)*ars+rows, 1).random(r).data, guard[T]((count-1)*ars+rows, 2).random(r).data, guard[T]((count-1)*ars+rows, 3).random(r).data
	y, coef := guard[T]((count-1)*yrs+n, 4).random(r).data, []T{0.75, 1.5}
	s, c := guard[T]((states-1)*next+state+rows, 5).random(r), guard[T]((count-1)*crs+n, 7).random(r)
	wantC, wantS := slices.Clone(c.data), slices.Clone(s.data)
	totals, weights := guard[T](count, 8), guard[T](count, 9)
	wantTotals, wantWeights := make([]T, count), make([]T, count)
	for i := range count {
		a, q, x, y := a[i*ars:][:rows], q[i*ars:][:rows], x[i*ars:][:rows], y[i*yrs:][:n]
		b, z := wantS[i*next:][:state], wantS[i*next+state:][:rows]
		column, w, sum := make([]T, rows*Lanes), make([]T, Lanes), make([]T, 1)
		for p := range rows {
			column[p*Lanes] = x[p]
		}
		k.Block(1, Lanes, rows, q, 0, 1, column, Lanes, w, Lanes, false)
		k.PolyRows(w, w, Lanes, 1, coef, sum)
		c := wantC[i*crs:][:n]
		clear(c)
		k.Mix(c, w[:1], 1, y, n, nil, 0)
		wantTotals[i], wantWeights[i] = k.Mix(c, a, rows, b, brs, z, sum[0]), w[0]
		k.Block(rows, n, 1, x, 1, 1, y, n, b, brs, true)
		k.Add(z, z, x)
	}
	k.Renew(count, n, rows, c.data, crs, a, q, x, ars, y, yrs, s.data, brs, s.data[state:], next, coef[0], coef[1], totals.data, weights.data)
	for _, g := range []*guarded[T]{s, c, totals, weights} {
		g.intact(t, name)
	}
	switch {
	case !same(totals.data, wantTotals) || !same(weights.data, wantWeights) || !same(c.data, wantC):
		t.Fatalf("%s: answers %v in all, want %v, or other numbers", name, totals.data, wantTotals)
	case !same(s.data, wantS):
		t.Fatalf("%s: leaves other sums", name)
	}
}

func TestFeatureRow(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testFeatureRow[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testFeatureRow[float64]) })
}

func testFeatureRow[T Float](t *testing.T, k *Table[T]) {
	r := source()
	for _, n := range []int{1, 2, 7, 16, 17, 33, 65} {
		for rows := range n + 1 {
			count := rowFeatures(n, rows)
			x, w := guard[T](n+Lanes, 1).random(r).data, guard[T](count+Lanes, 2).random(r).data
			dst := guard[T](count+Lanes-1, 3)
			k.FeatureRow(dst.data, w, 0.75, x[:n], rows)
			dst.intact(t, "FeatureRow")
			i := 0
			for a := range rows {
				for _, y := range x[a:n] {
					if want := 0.75 * x[a] * y * w[i]; dst.data[i] != want {
						t.Fatalf("n=%d rows=%d: [%d] is %v, want %v", n, rows, i, dst.data[i], want)
					}
					i++
				}
			}
			if i != count {
				t.Fatalf("n=%d: %d products of %d rows, not %d", n, i, rows, count)
			}
		}
	}
}

func TestTokenAgree(t *testing.T) {
	all := Tables[float32]()
	if len(all) < 3 {
		t.Skipf("this machine has only %d tables", len(all))
	}
	r := source()
	const n, rows, step = 176, 131, 48
	a, b, z := guard[float32](rows, 1).random(r).data, matrix[float32](r, rows, n, n).data, guard[float32](rows, 2).random(r).data
	var c [2][]float32
	var total [2]float32
	for i, k := range all[:2] {
		c[i] = make([]float32, n)
		total[i] = k.Mix(c[i], a, step, b, n, z, 1)
	}
	if !same(c[0], c[1]) || total[0] != total[1] {
		t.Error("Mix differs")
	}
}

func TestTokenShort(t *testing.T) { each(t, testTokenShort) }

func testTokenShort(t *testing.T, k *Table[float32]) {
	long, short := make([]float32, 64), make([]float32, 31)
	for i, f := range []func(){
		func() { k.Mix(long[:16], long[:3], 2, short, 16, nil, 0) },
		func() { k.Mix(long[:16], short[:3], 2, long, 16, short[:2:2], 0) },
		func() { k.Mix(long[:15], short[:3], 2, long, 16, nil, 0) },
		func() {
			k.Renew(2, 15, 3, long, 16, long, long, long, 3, long, 16, long, 16, long, 16, 1, 1, long, long)
		},
		func() {
			k.Renew(2, 16, 3, short, 16, long, long, long, 3, long, 16, long, 16, long, 16, 1, 1, long, long)
		},
		func() {
			k.Renew(2, 16, 3, long, 16, short[:5:5], long, long, 3, long, 16, long, 16, long, 16, 1, 1, long, long)
		},
		func() {
			k.Renew(2, 16, 3, long, 16, long, short[:5:5], long, 3, long, 16, long, 16, long, 16, 1, 1, long, long)
		},
		func() {
			k.Renew(2, 16, 3, long, 16, long, long, short[:5:5], 3, long, 16, long, 16, long, 16, 1, 1, long, long)
		},
		func() {
			k.Renew(2, 16, 3, long, 16, long, long, long, 3, short, 16, long, 16, long, 16, 1, 1, long, long)
		},
		func() {
			k.Renew(2, 16, 3, long, 16, long, long, long, 3, long, 16, short, 16, long, 16, 1, 1, long, long)
		},
		func() {
			k.Renew(2, 16, 3, long, 16, long, long, long, 3, long, 16, long, 16, short[:5:5], 16, 1, 1, long, long)
		},
		func() {
			k.Renew(2, 16, 3, long, 16, long, long, long, 3, long, 16, long, 16, long, 16, 1, 1, short[:1:1], long)
		},
		func() {
			k.Renew(2, 16, 3, long, 16, long, long, long, 3, long, 16, long, 16, long, 16, 1, 1, long, short[:1:1])
		},
		func() { k.FeatureRow(short[:2], long, 1, short[:3], 1) },
		func() { k.FeatureRow(long, short[:2], 1, short[:3], 1) },
		func() { k.FeatureRow(long, long, 1, short[:3], 4) },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestTokenDoesNotAllocate(t *testing.T) { each(t, testTokenDoesNotAllocate) }

func testTokenDoesNotAllocate(t *testing.T, k *Table[float32]) {
	x := make([]float32, 512)
	if count := testing.AllocsPerRun(5, func() {
		k.Mix(x[:64], x[64:68], 3, x[128:], 64, x[80:], 0)
		k.Renew(2, 32, 4, x[:64], 32, x[64:72], x[72:80], x[80:88], 4, x[96:160], 32, x[160:448], 32, x[288:], 144, 0, 1, x[480:], x[490:])
		k.FeatureRow(x, x[100:], 1, x[400:405], 5)
	}); count != 0 {
		t.Errorf("%v allocations", count)
	}
}

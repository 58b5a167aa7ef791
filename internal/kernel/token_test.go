package kernel

import (
	"fmt"
	"slices"
	"testing"
)

// Mix is Block step by step, and its total what a column more would be.
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

// Renew is what Block, PolyRows and Mix make of a chunk of one token: its weight, the
// weighted value over the sums before it, and its products added to these.
func TestRenew(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testRenew[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testRenew[float64]) })
}

func testRenew[T Float](t *testing.T, k *Table[T]) {
	r := source()
	for _, n := range []int{16, 32, 48, 64, 80} {
		for _, rows := range []int{1, 3, 4, 5, 24, 67} {
			name := fmt.Sprintf("n=%d rows=%d", n, rows)
			brs := n + 3
			a, q, x := guard[T](rows, 1).random(r).data, guard[T](rows, 2).random(r).data, guard[T](rows, 3).random(r).data
			y, coef := guard[T](n, 4).random(r).data, []T{0.75, 1.5}
			b, z, c := guard[T]((rows-1)*brs+n, 5).random(r), guard[T](rows, 6).random(r), guard[T](n, 7).random(r)
			column, w, sum := make([]T, rows*Lanes), make([]T, Lanes), make([]T, 1)
			for p := range rows {
				column[p*Lanes] = x[p]
			}
			k.Block(1, Lanes, rows, q, 0, 1, column, Lanes, w, Lanes, false)
			k.PolyRows(w, w, Lanes, 1, coef, sum)
			want, sums := make([]T, n), slices.Clone(b.data)
			k.Mix(want, w[:1], 1, y, n, nil, 0)
			total := k.Mix(want, a, rows, sums, brs, z.data, sum[0])
			k.Block(rows, n, 1, x, 1, 1, y, n, sums, brs, true)
			last := make([]T, rows)
			k.Add(last, z.data, x)
			got := k.Renew(c.data, a, q, x, y, b.data, brs, z.data, coef[0], coef[1])
			for _, g := range []*guarded[T]{b, z, c} {
				g.intact(t, name)
			}
			switch {
			case got != total || !same(c.data, want):
				t.Fatalf("%s: answers %v in all, want %v, or other numbers", name, got, total)
			case !same(b.data, sums) || !same(z.data, last):
				t.Fatalf("%s: leaves other sums", name)
			}
		}
	}
	if got := k.Renew(nil, nil, nil, nil, nil, nil, 0, nil, 1, 1); got != 0 {
		t.Errorf("no rows answer %v", got)
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
		func() { k.Renew(long[:15], long[:3], long, long, long, long, 16, long, 1, 1) },
		func() { k.Renew(long[:16], long[:3], short[:2:2], long, long, long, 16, long, 1, 1) },
		func() { k.Renew(long[:16], long[:3], long, short[:2:2], long, long, 16, long, 1, 1) },
		func() { k.Renew(long[:16], long[:3], long, long, short[:15:15], long, 16, long, 1, 1) },
		func() { k.Renew(long[:16], long[:3], long, long, long, short, 16, long, 1, 1) },
		func() { k.Renew(long[:16], long[:3], long, long, long, long, 16, short[:2:2], 1, 1) },
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
		k.Renew(x[:32], x[64:68], x[68:], x[72:], x[80:], x[128:], 32, x[120:], 0, 1)
		k.FeatureRow(x, x[100:], 1, x[400:405], 5)
	}); count != 0 {
		t.Errorf("%v allocations", count)
	}
}

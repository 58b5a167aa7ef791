package kernel

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/arena"
)

// The candidates hold the row of the largest x·c - h, and few others; rows that 8 bits do not hold have none.
func TestByteSearch(t *testing.T) { each(t, testByteSearch) }

func testByteSearch(t *testing.T, k *Table[float32]) {
	if k.search == nil {
		t.Skip("no search in 8 bits")
	}
	r, ar := source(), new(arena.Arena)
	for _, s := range []struct {
		n, d  int
		scale float32
	}{{1, 1, 1}, {16, 3, 1}, {33, 8, 1e-6}, {100, 17, 1e6}, {1000, 32, 1}, {515, 130, 3}, {64, maxSearch, 1}} {
		c, x, h := randomFloats(r, s.n*s.d, float64(s.scale)), randomFloats(r, SearchRows*s.d, float64(s.scale)), make([]float32, s.n)
		reach := 0.0
		dot := func(x, y []float32) (sum float64) {
			for i, v := range x {
				sum += float64(v) * float64(y[i])
			}
			return sum
		}
		row := func(x []float32, i int) []float32 { return x[i*s.d:][:s.d] }
		for j := range h {
			square := dot(row(c, j), row(c, j))
			h[j], reach = float32(square/2), max(reach, math.Sqrt(square))
		}
		for i := range SearchRows { // beside a row, as keys of a codebook are
			for e, y := range row(c, (7*i+s.n/2)%s.n) {
				if row(x, i)[e] = y + row(x, i)[e]/3; i == 1 {
					row(x, i)[e] = y
				}
			}
		}
		search, ok := NewByteSearch(k, ar, c, s.d, s.n, s.d, h, reach)
		if !ok {
			t.Fatalf("%+v: no search", s)
		}
		for _, m := range []int{SearchRows, 5} {
			search.Set(m, x, s.d)
			all := 0
			for i := range m {
				best, most := 0, math.Inf(-1)
				for j := range s.n {
					if y := dot(row(x, i), row(c, j)) - float64(h[j]); y > most {
						best, most = j, y
					}
				}
				list := search.Candidates(ar, i, math.Sqrt(dot(row(x, i), row(x, i))))
				if all += len(list); !slices.Contains(list, int32(best)) {
					t.Errorf("%+v, row %d: %d is not among %v", s, i, best, list)
				}
				for _, j := range list {
					if j < 0 || int(j) >= s.n {
						t.Errorf("%+v, row %d: no row %d", s, i, j)
					}
				}
			}
			if s.n == 1000 && all > 3*m {
				t.Errorf("%d candidates of %d rows", all, m)
			}
		}
		for i, y := range []float32{float32(math.NaN()), float32(math.Inf(1)), 0, 1e-35, math.MaxFloat32} {
			for e := range s.d {
				row(x, i)[e] = y
			}
		}
		search.Set(5, x, s.d)
		for i := range 5 {
			if list := search.Candidates(ar, i, math.Sqrt(dot(row(x, i), row(x, i)))); list != nil {
				t.Errorf("%+v, row %d: candidates %v", s, i, list)
			}
		}
		ar.Reset(0)
	}
	for _, reach := range []float64{0, math.Inf(1), math.NaN()} {
		if _, ok := NewByteSearch(k, ar, make([]float32, 4), 4, 1, 4, make([]float32, 1), reach); ok {
			t.Errorf("a search among rows as long as %v", reach)
		}
	}
}

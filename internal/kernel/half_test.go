package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Products with weights of 16 bits have the bits of the widened weights.
func TestHalvesHaveTheBitsOfFloats(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{1, 1, 1}, {1, 64, 300}, {2, 32, 77}, {3, 96, 300}, {9, 112, 40}, {3, 97, 5}, {4, 48, 513}, {5, 130, 33}, {131, 40, 270}, {12, 64, 0}, {2, 33, 0}} {
		m, n, k := s[0], s[1], s[2]
		x, w, before := randomFloats(r, m*k, 1), randomFloats(r, n*k, 1), randomFloats(r, m*n, 1)
		h, column := NewHalfStrips(n, k), make([]uint16, k)
		for j := range n {
			for p := range column {
				column[p] = Half(w[j*k+p])
				w[j*k+p] = WidenHalf(column[p])
			}
			h.SetColumns(ActiveHalf(), j, column, make([]float32, SetScratch(k)))
			got := make([]uint16, k)
			if h.Column(j, got); !slices.Equal(got, column) {
				t.Fatalf("column %d is read as %v, want %v", j, got, column)
			}
		}
		for _, table := range HalfTables() {
			for _, acc := range []bool{false, true} {
				want, got := slices.Clone(before), slices.Clone(before)
				Gemm(table.table, false, true, m, n, k, x, max(k, 1), w, max(k, 1), acc, want, n, make([]float32, GemmScratch(m, n, k)))
				h.Multiply(table, 0, h.Count(), m, x, k, acc, got, n, make([]float32, HalfScratch))
				if !slices.Equal(got, want) {
					t.Errorf("%s [%d,%d,%d] acc=%t: differs from the widened weights", table.table.Name, m, n, k, acc)
				}
			}
		}
	}
}

// Columns that are set together, from any of them on, are those that are set one by one, and a number that
// is not finite is found wherever it is.
func TestColumnsOfHalvesAreSetTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, s := range [][2]int{{1, 3}, {32, 8}, {64, 17}, {96, 9}, {80, 40}, {171, 33}} {
		n, k := s[0], s[1]
		w, scratch := make([]uint16, n*k), make([]float32, SetScratch(k))
		for i := range w {
			w[i] = Half(float32(r.NormFloat64()))
		}
		want := NewHalfStrips(n, k)
		for j := range n {
			want.SetColumns(ActiveHalf(), j, w[j*k:][:k], scratch)
		}
		for _, table := range HalfTables() {
			for _, step := range []int{n, 32, 40, 7} {
				h := NewHalfStrips(n, k)
				for j := 0; j < n; j += step {
					if !h.SetColumns(table, j, w[j*k:min(j+step, n)*k], scratch) {
						t.Fatalf("%s [%d,%d]: finite numbers are refused", table.table.Name, n, k)
					}
				}
				if !slices.Equal(h.data, want.data) {
					t.Errorf("%s [%d,%d]: %d columns at a time differ from one at a time", table.table.Name, n, k, step)
				}
			}
			for _, bad := range []uint16{0x7f80, 0xff80, 0x7fc1} {
				for range 20 {
					at := r.IntN(len(w))
					kept := w[at]
					w[at] = bad
					if NewHalfStrips(n, k).SetColumns(table, 0, w, scratch) {
						t.Errorf("%s [%d,%d]: element %d, bits %x, is taken for finite", table.table.Name, n, k, at, bad)
					}
					w[at] = kept
				}
			}
		}
	}
}

func TestHalfRoundsToNearest(t *testing.T) {
	for _, c := range []struct{ x, want float32 }{
		{1, 1}, {-1.00390625, -1}, {1.01171875, 1.015625}, {1.005859375, 1.0078125}, {0, 0},
		{float32(math.Inf(1)), float32(math.Inf(1))}, {math.MaxFloat32, float32(math.Inf(1))}, {1e-40, 0x1p-133},
	} {
		if got := WidenHalf(Half(c.x)); got != c.want {
			t.Errorf("%v becomes %v, want %v", c.x, got, c.want)
		}
	}
	if x := WidenHalf(Half(math.Float32frombits(0x7f800001))); !math.IsNaN(float64(x)) {
		t.Errorf("a NaN becomes %v", x)
	}
}

func BenchmarkHalf(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, s := range [][3]int{{1, 8192, 4096}, {12, 1536, 384}, {128, 1536, 384}} {
		m, n, k := s[0], s[1], s[2]
		x, c := randomFloats(r, m*k, 1), make([]float32, m*n)
		h := NewHalfStrips(n, k)
		for i := range h.data {
			h.data[i] = Half(float32(i%7) - 3)
		}
		f := Strips[float32]{n, k, make([]float32, Pad(n)*k)}
		for i := range f.data {
			f.data[i] = float32(i%7) - 3
		}
		scratch := make([]float32, HalfScratch)
		b.Run(fmt.Sprintf("16/%dx%dx%d", m, n, k), func(b *testing.B) {
			for b.Loop() {
				h.Multiply(ActiveHalf(), 0, h.Count(), m, x, k, false, c, n, scratch)
			}
		})
		b.Run(fmt.Sprintf("32/%dx%dx%d", m, n, k), func(b *testing.B) {
			for b.Loop() {
				f.Multiply(Active[float32](), 0, f.Count(), m, x, k, false, c, n, scratch)
			}
		})
	}
}

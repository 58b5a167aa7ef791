package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/suite"
)

// matrix is a strided matrix of random numbers, with NaNs between its rows.
func matrix[T Float](r *rand.Rand, rows, cols, stride int) *guarded[T] {
	g := guard[T](max(0, (rows-1)*stride+cols), 1)
	for i := range rows {
		for j := range cols {
			g.data[i*stride+j] = T(r.NormFloat64())
		}
	}
	return g
}

// product returns the textbook product in float64, and the sum of magnitudes that bounds its error
// in T.
func product[T Float](k int, a, b func(p int) T) (sum, size float64) {
	for p := range k {
		x := float64(a(p)) * float64(b(p))
		sum += x
		size += math.Abs(x)
	}
	return sum, size
}

func TestBlock(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testBlock[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testBlock[float64]) })
}

func testBlock[T Float](t *testing.T, tab *Table[T]) {
	r, u := source(), unit[T]()+unit[float64]()
	for _, m := range []int{0, 1, 2, 3, 5, 6, 7, 11, 12, 13, 23, 25, 47} {
		for _, n := range []int{0, 16, 32, 48, 64, 80, 144} {
			for _, k := range []int{0, 1, 2, 3, 4, 5, 7, 8, 33, 67} {
				for variant := range 6 {
					order, acc := variant%3, variant >= 3
					if order != (m+n/16+k)%3 && !suite.IsLong() {
						continue
					}
					ars, acs := k+3, 1
					a := matrix[T](r, m, k, ars)
					switch order {
					case 1: // transposed
						ars, acs = 1, m+5
						a = matrix[T](r, k, m, acs)
					case 2: // every second element of a row
						ars, acs = 2*k+3, 2
						a = matrix[T](r, m, 2*k, ars)
					}
					brs, crs := n+1, n+7
					b := matrix[T](r, k, n, brs)
					c := matrix[T](r, m, n, crs)
					before := slices.Clone(c.data)
					if !acc {
						for i := range m {
							for j := range n {
								c.data[i*crs+j] = T(math.NaN())
							}
						}
					}
					tab.Block(m, n, k, a.data, ars, acs, b.data, brs, c.data, crs, acc)
					name := fmt.Sprintf("m=%d n=%d k=%d order=%d acc=%v", m, n, k, order, acc)
					c.intact(t, name)
					for x, got := range c.data {
						i, j := x/crs, x%crs
						if j >= n {
							if bits(got) != bits(mark[T]()) {
								t.Fatalf("%s: wrote between rows %d and %d", name, i, i+1)
							}
							continue
						}
						want, size := product(k, func(p int) T { return a.data[i*ars+p*acs] }, func(p int) T { return b.data[p*brs+j] })
						if acc {
							want += float64(before[x])
							size += math.Abs(float64(before[x]))
						}
						if !near(float64(got), want, float64(2*k+1)*u*size) {
							t.Fatalf("%s: C[%d,%d] = %v, want %v", name, i, j, got, want)
						}
					}
				}
			}
		}
	}
}

func TestGemm(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testGemm[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testGemm[float64]) })
}

func testGemm[T Float](t *testing.T, tab *Table[T]) {
	r, u := source(), unit[T]()+unit[float64]()
	shapes := [][3]int{
		{0, 3, 5}, {3, 0, 5}, {3, 5, 0}, {1, 1, 1}, {1, 16, 9}, {2, 17, 33}, {7, 15, 4}, {12, 32, 16},
		{13, 33, 31}, {24, 48, 65}, {25, 47, 65}, {31, 97, 129}, {1, 129, 300}, {5, 3, 517},
		{97, 65, 47}, {33, 31, 257}, {193, 17, 19}, {199, 33, 389}, {27, 1031, 3}, {3, 1027, 5}, {29, 5, 769},
	}
	for _, s := range shapes {
		m, n, k := s[0], s[1], s[2]
		for variant := range 8 {
			ta, tb, acc := variant&1 > 0, variant&2 > 0, variant&4 > 0
			lda, ldb, ldc := k+3, n+1, n+5
			a, b := matrix[T](r, m, k, lda), matrix[T](r, k, n, ldb)
			ars, acs, brs, bcs := lda, 1, ldb, 1
			if ta {
				lda = m + 7
				ars, acs = 1, lda
				a = matrix[T](r, k, m, lda)
			}
			if tb {
				ldb = k + 11
				brs, bcs = 1, ldb
				b = matrix[T](r, n, k, ldb)
			}
			c := matrix[T](r, m, n, ldc)
			before := slices.Clone(c.data)
			if !acc {
				for i := range m {
					for j := range n {
						c.data[i*ldc+j] = T(math.NaN())
					}
				}
			}
			scratch := guard[T](GemmScratch(m, n, k), 0)
			Gemm(tab, ta, tb, m, n, k, a.data, lda, b.data, ldb, acc, c.data, ldc, scratch.data)
			name := fmt.Sprintf("m=%d n=%d k=%d ta=%v tb=%v acc=%v", m, n, k, ta, tb, acc)
			scratch.intact(t, name)
			c.intact(t, name)
			for x, got := range c.data {
				i, j := x/ldc, x%ldc
				if j >= n {
					if bits(got) != bits(mark[T]()) {
						t.Fatalf("%s: wrote between rows %d and %d", name, i, i+1)
					}
					continue
				}
				want, size := product(k, func(p int) T { return a.data[i*ars+p*acs] }, func(p int) T { return b.data[p*brs+j*bcs] })
				if acc {
					want += float64(before[x])
					size += math.Abs(float64(before[x]))
				}
				if !near(float64(got), want, float64(2*k+1)*u*size) {
					t.Fatalf("%s: C[%d,%d] = %v, want %v", name, i, j, got, want)
				}
			}
		}
	}
}

// Scratch for a product suffices for all smaller ones, and is bounded.
func TestGemmScratch(t *testing.T) {
	if n := GemmScratch(1<<20, 1<<20, 1<<20); n > 1<<19 {
		t.Errorf("%d elements for large matrices", n)
	}
	for size := 1; size < 1100; size += 3 {
		all := GemmScratch(size, size, size)
		for _, s := range [][3]int{{size - 1, size, size}, {size, size - 1, size}, {size, size, size - 1}} {
			if n := GemmScratch(s[0], s[1], s[2]); n > all {
				t.Errorf("%v takes %d, more than %d for %d", s, n, all, size)
			}
		}
	}
}

// The bits of an element depend on its row of A and column of B alone.
func TestGemmBits(t *testing.T) { each(t, testGemmBits) }

func testGemmBits(t *testing.T, tab *Table[float32]) {
	const m, n, k = 101, 83, 500
	r := source()
	a, b := matrix[float32](r, m, k, k).data, matrix[float32](r, k, n, n).data
	bt := make([]float32, n*k)
	transposeGo(bt, k, b, n, k, n)
	at := make([]float32, m*k)
	transposeGo(at, m, a, k, m, k)
	scratch := make([]float32, GemmScratch(m, n, k))
	whole := make([]float32, m*n)
	Gemm(tab, false, false, m, n, k, a, k, b, n, false, whole, n, scratch)
	part := make([]float32, m*n)
	for _, rows := range []int{1, 2, 7, 12, 25, m} {
		for _, cols := range []int{1, 5, 16, 33, 64, n} {
			for i := 0; i+rows <= m; i += 31 {
				for j := 0; j+cols <= n; j += 19 {
					for variant := range 4 {
						ta, tb := variant&1 > 0, variant&2 > 0
						x, lda, y, ldb := a[i*k:], k, b[j:], n
						if ta {
							x, lda = at[i:], m
						}
						if tb {
							y, ldb = bt[j*k:], k
						}
						Gemm(tab, ta, tb, rows, cols, k, x, lda, y, ldb, false, part, cols, scratch)
						for p := range rows {
							if !same(part[p*cols:][:cols], whole[(i+p)*n+j:][:cols]) {
								t.Fatalf("%d×%d at (%d,%d) ta=%v tb=%v: row %d has other bits than in the whole", rows, cols, i, j, ta, tb, p)
							}
						}
					}
				}
			}
		}
	}
}

// A packed B gives the bits of Gemm for any rows and columns, and for any order of packing its pieces.
// A bias is added last, and prefetched memory is not changed.
func TestPanels(t *testing.T) { each(t, testPanels) }

func testPanels(t *testing.T, tab *Table[float32]) {
	for _, s := range [][3]int{{1, 1, 1}, {3, 17, 5}, {31, 130, 300}, {150, 261, 513}, {5, 128, 0}, {40, 259, 257}, {28, 96, 3}} {
		m, n, k := s[0], s[1], s[2]
		for variant := range 16 {
			if m*n*k > 1e6 && variant%5 > 0 && !suite.IsLong() {
				continue
			}
			ta, tb, acc, biased := variant&1 > 0, variant&2 > 0, variant&4 > 0, variant&8 > 0
			r := source()
			lda, ldb, ldc := k+3, n+2, n+5
			a, b := matrix[float32](r, m, k, lda), matrix[float32](r, k, n, ldb)
			if ta {
				lda = m + 7
				a = matrix[float32](r, k, m, lda)
			}
			if tb {
				ldb = k + 9
				b = matrix[float32](r, n, k, ldb)
			}
			c := matrix[float32](r, m, n, ldc)
			want := slices.Clone(c.data)
			Gemm(tab, ta, tb, m, n, k, a.data, lda, b.data, ldb, acc, want, ldc, make([]float32, GemmScratch(m, n, k)))
			var bias, ahead []float32
			step := PanelColumns
			if biased {
				bias = guard[float32](n, 1).random(r).data
				tab.AddRows(want, ldc, want, ldc, bias, 0, m, n)
				step, ahead = 3*Lanes, make([]float32, 1000)
			}
			room, scratch := guard[float32](PanelsSize(n, k), 0), guard[float32](MultiplyScratch(m, k), 0)
			p := NewPanels(tab, n, k, room.data)
			for i := range p.Pieces() {
				p.Pack(p.Pieces()-1-i, tb, b.data, ldb)
			}
			half := m / 2 // of the rows, then the others
			for _, rows := range [][2]int{{0, half}, {half, m}} {
				x := a.data
				if k > 0 && ta {
					x = x[rows[0]:]
				} else if k > 0 {
					x = x[rows[0]*lda:]
				}
				for j := 0; j < n; j += step {
					rest := p.Multiply(ta, rows[1]-rows[0], x, lda, j, min(j+step, n), acc, c.data[rows[0]*ldc+j:], ldc, bias, scratch.data, ahead)
					if asks := tab.Tiles != nil && tab.PanelWidth == 0; len(rest) > len(ahead) || !asks && len(rest) != len(ahead) {
						t.Fatalf("asks for %d of %d numbers", len(ahead)-len(rest), len(ahead))
					}
					ahead = rest
				}
			}
			if tab.Tiles != nil && tab.PanelWidth == 0 && !ta && biased && m >= 40 && len(ahead) > 0 {
				t.Errorf("%s: does not ask for %d numbers", tab.Name, len(ahead))
			}
			name := fmt.Sprintf("m=%d n=%d k=%d ta=%v tb=%v acc=%v bias=%v", m, n, k, ta, tb, acc, biased)
			room.intact(t, name)
			scratch.intact(t, name)
			c.intact(t, name)
			if !same(c.data, want) {
				t.Fatalf("%s: other bits than Gemm's", name)
			}
		}
	}
}

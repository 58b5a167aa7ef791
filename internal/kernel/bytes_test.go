package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomBytes returns weights [n,k] and rows [m,k] with a scale of their own each.
func randomFloats(r *rand.Rand, n int, spread float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * spread)
	}
	return x
}

func byteProduct(t testing.TB, table *ByteTable, m, n, k int, x, w, bias []float32) []float32 {
	t.Helper()
	p, err := NewBytePanels(n, k)
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]int8, Pad(k))
	for j := range n {
		p.Quantise(table, j, w[j*k:][:k], buffer)
	}
	a := newByteRows(table, m, k)
	for i := range m {
		a.Quantise(table, i, x[i*k:][:k])
	}
	c := make([]float32, m*n)
	p.Multiply(table, m, a, 0, n, c, n, bias, make([]float32, ByteScratch(m)))
	return c
}

func newByteRows(t *ByteTable, m, k int) *ByteRows {
	a := &ByteRows{
		Data: make([]int8, m*ByteStride(k)), Scales: make([]float32, m), Sums: make([]int32, m),
		Counts: make([]int32, m), Steps: make([]int32, m*MaxOutliers), Values: make([]float32, m*MaxOutliers),
	}
	if t.HasWords() {
		a.Words = make([]int16, len(a.Data))
	}
	return a
}

// All tables give the bits of plain Go, for sizes around those of tiles and panels, and the
// largest sums that there can be do not saturate.
func TestBytesHaveTheSameBits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{1, 1, 1}, {1, 32, 4}, {2, 33, 5}, {3, 64, 384}, {12, 31, 17}, {13, 96, 130}, {27, 70, 64}, {130, 40, 33}, {5, 64, 4096}} {
		m, n, k := s[0], s[1], s[2]
		x, w, bias := randomFloats(r, m*k, 3), randomFloats(r, n*k, 0.1), randomFloats(r, n, 1)
		extreme := func(x []float32, sign float32) []float32 {
			y := make([]float32, len(x))
			for i := range y {
				y[i] = sign
			}
			return y
		}
		for _, c := range []struct {
			name       string
			x, w, bias []float32
		}{
			{"normal", x, w, bias}, {"no bias", x, w, nil}, {"largest", extreme(x, 1), extreme(w, 1), bias},
			{"smallest", extreme(x, -1), extreme(w, 1), bias}, {"zeros", extreme(x, 0), w, bias},
			{"outliers", plant(x, m, k), w, bias},
		} {
			want := byteProduct(t, genericBytes, m, n, k, c.x, c.w, c.bias)
			for _, table := range ByteTables() {
				if got := byteProduct(t, table, m, n, k, c.x, c.w, c.bias); !slices.Equal(got, want) {
					t.Errorf("%s, %s [%d,%d,%d]: differs from plain Go", table.Name, c.name, m, n, k)
				}
			}
		}
	}
}

// plant returns rows of which the first two numbers, where there may be outliers, are far larger than others.
func plant(x []float32, m, k int) []float32 {
	y := slices.Clone(x)
	for i := range m {
		for j := range min(2, k/outlierShare) {
			y[i*k+j*(k-1)] = float32(300 * (1 - 2*j))
		}
	}
	return y
}

// Outliers of a row cost the other numbers no steps. A row whose numbers are all large has none.
func TestOutliersStayBesideTheIntegers(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const m, n, k = 5, 40, 200
	x, w := randomFloats(r, m*k, 1), randomFloats(r, n*k, 0.1)
	a := newByteRows(ActiveBytes(), m, k)
	for i := range m {
		if a.Quantise(ActiveBytes(), i, x[i*k:][:k]); a.Counts[i] != 0 {
			t.Errorf("row %d of normal numbers has %d outliers", i, a.Counts[i])
		}
	}
	far := plant(x, m, k)
	a.Quantise(ActiveBytes(), 0, far[:k])
	if a.Counts[0] != 2 || a.Steps[0] != 0 || a.Steps[1] != k-1 || a.Values[0] != 300 || a.Values[1] != -300 || a.Data[0] != 0 || a.Scales[0] > 5./127 {
		t.Errorf("%d outliers at %v, scale %v", a.Counts[0], a.Steps[:2], a.Scales[0])
	}
	got := byteProduct(t, ActiveBytes(), m, n, k, far, w, nil)
	p, err := NewBytePanels(n, k)
	if err != nil {
		t.Fatal(err)
	}
	wide, buffer, most := make([]float32, k), make([]int8, Pad(k)), 0.0
	for j := range n {
		p.Quantise(ActiveBytes(), j, w[j*k:][:k], buffer)
		p.Widen(wide, j)
		for i := range m {
			want := 0.0
			for s, v := range wide {
				want += float64(far[i*k+s]) * float64(v)
			}
			most = max(most, math.Abs(float64(got[i*n+j])-want))
		}
	}
	// Half a step of the others times the sum of the weights; 300/127/2 would be 1.2 times it.
	if bound := 5. / 127 / 2 * 0.1 * k; !(most <= bound) {
		t.Errorf("products are off by %v, the bound is %v", most, bound)
	}
}

func TestFindOutliers(t *testing.T) {
	for v := -127; v <= 127; v++ {
		row := make([]int8, 16)
		row[11] = int8(v)
		steps := make([]int32, 1)
		want := 0
		if v >= outlierLevel || v <= -outlierLevel {
			want = 1
		}
		if got := findOutliers(steps, row); got != want || want == 1 && steps[0] != 11 {
			t.Errorf("%d: %d at %v", v, got, steps)
		}
	}
}

// The product is that of the numbers within half a step of each operand.
func TestBytesAreNearTheProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const m, n, k = 9, 37, 200
	x, w, bias := randomFloats(r, m*k, 2), randomFloats(r, n*k, 0.3), randomFloats(r, n, 1)
	got := byteProduct(t, ActiveBytes(), m, n, k, x, w, bias)
	top := func(x []float32) (most float64) {
		for _, v := range x {
			most = max(most, math.Abs(float64(v)))
		}
		return most
	}
	for i := range m {
		for j := range n {
			a, b := x[i*k:][:k], w[j*k:][:k]
			want, bound := float64(bias[j]), 1e-5
			sa, sb := top(a)/127/2, top(b)/127/2 // the largest errors of rounding
			for p := range k {
				want += float64(a[p]) * float64(b[p])
				bound += sa*math.Abs(float64(b[p])) + sb*math.Abs(float64(a[p])) + sa*sb
			}
			if e := math.Abs(float64(got[i*n+j]) - want); !(e <= bound) {
				t.Fatalf("[%d,%d] is off by %v, the bound is %v", i, j, e, bound)
			}
		}
	}
}

// A number that is not finite makes its row NaN; numbers too small for a scale are zeros.
func TestBytesOfNumbersWithoutAScale(t *testing.T) {
	const m, n, k = 4, 33, 19
	for _, table := range ByteTables() {
		x, w := make([]float32, m*k), make([]float32, n*k)
		for i := range w {
			w[i] = 1
		}
		x[0*k+3], x[1*k+18], x[2*k] = float32(math.NaN()), float32(math.Inf(-1)), 1e-38
		x[3*k+1] = math.MaxFloat32
		c := byteProduct(t, table, m, n, k, x, w, nil)
		for j := range n {
			if !math.IsNaN(float64(c[j])) || !math.IsNaN(float64(c[n+j])) || c[2*n+j] != 0 || !(c[3*n+j] > 3e38) {
				t.Fatalf("%s: column %d: %v %v %v %v", table.Name, j, c[j], c[n+j], c[2*n+j], c[3*n+j])
			}
		}
	}
}

func TestBytePanelsKeepTheirIntegers(t *testing.T) {
	p, err := NewBytePanels(40, 10)
	if err != nil {
		t.Fatal(err)
	}
	for j := range p.N {
		w := make([]int8, p.K)
		for k := range w {
			w[k] = int8((j*31+k*17)%255 - 127)
		}
		p.Set(j, w, float32(j))
		got := make([]int8, p.K)
		if scale := p.Column(j, got); scale != float32(j) || !slices.Equal(got, w) {
			t.Fatalf("column %d: %v, want %v", j, got, w)
		}
	}
	if _, err := NewBytePanels(1, maxByteSteps+1); err == nil {
		t.Error("more steps than sums can hold are accepted")
	}
}

func BenchmarkBytes(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, s := range [][3]int{{1, 1536, 384}, {12, 384, 384}, {128, 384, 384}, {128, 1536, 384}, {512, 384, 1536}} {
		m, n, k := s[0], s[1], s[2]
		x, w := randomFloats(r, m*k, 1), randomFloats(r, n*k, 1)
		for _, table := range ByteTables() {
			if table == genericBytes {
				continue
			}
			p, _ := NewBytePanels(n, k)
			buffer := make([]int8, Pad(k))
			for j := range n {
				p.Quantise(table, j, w[j*k:][:k], buffer)
			}
			a := newByteRows(table, m, k)
			c, scratch := make([]float32, m*n), make([]float32, ByteScratch(m))
			b.Run(fmt.Sprintf("%s/%dx%dx%d", table.Name, m, n, k), func(b *testing.B) {
				for b.Loop() {
					for i := range m {
						a.Quantise(table, i, x[i*k:][:k])
					}
					p.Multiply(table, m, a, 0, n, c, n, nil, scratch)
				}
				b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
			})
		}
		table := Active[float32]()
		panels := NewPanels(table, n, k, make([]float32, PanelsSize(n, k)))
		for i := range panels.Pieces() {
			panels.Pack(i, true, w, k)
		}
		c, scratch := make([]float32, m*n), make([]float32, MultiplyScratch(m, k))
		b.Run(fmt.Sprintf("float32-%s/%dx%dx%d", table.Name, m, n, k), func(b *testing.B) {
			for b.Loop() {
				panels.Multiply(false, m, x, k, 0, n, false, c, n, nil, scratch, nil)
			}
			b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
		})
	}
}

package kernel

import "math"

// HalfTable holds the routines of one instruction set for numbers of 16 bits in the format
// bfloat16: the upper half of a float32. Arithmetic is that of float32.
type HalfTable struct {
	table *Table[float32]
	mix   [3]func(k, step int, c, a *float32, b *uint16, brs int) // of 64, 32 and 16 columns; nil: none
	widen func(dst []float32, x []uint16)                         // of a multiple of Lanes
}

// HalfStrips is Strips of weights of 16 bits. A product has the bits of Gemm with the weights
// widened to float32.
type HalfStrips struct {
	N, K int
	data []uint16 // strips of stripColumns, the last padded to Lanes
}

// Half returns the upper half of x, rounded to nearest, ties to even. A NaN stays one.
func Half(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// WidenHalf returns the number whose upper half is x.
func WidenHalf(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// NewHalfStrips returns a matrix of zeros.
func NewHalfStrips(n, k int) *HalfStrips {
	return &HalfStrips{n, k, make([]uint16, Pad(n)*k)}
}

// width returns the stored columns of the strip at column j.
func (s *HalfStrips) width(j int) int { return min(stripColumns, Pad(s.N)-j) }

// column returns where column j begins, and the elements from one of its numbers to the next.
func (s *HalfStrips) column(j int) (column []uint16, stride int) {
	if s.K == 0 {
		return nil, 0
	}
	first := j / stripColumns * stripColumns
	return s.data[first*s.K+j-first:], s.width(first)
}

// SetColumns sets columns from j on to w, K numbers for each.
func (s *HalfStrips) SetColumns(j int, w []uint16) {
	for len(w) > 0 && s.K > 0 {
		strip, width := s.column(j)
		n := min(len(w)/s.K, width-j%stripColumns)
		rows := w[:n*s.K]
		for k := range s.K {
			to := strip[k*width:][:n]
			for i := range to {
				to[i] = rows[i*s.K+k]
			}
		}
		j, w = j+n, w[n*s.K:]
	}
}

// Column sets w [K] to column j.
func (s *HalfStrips) Column(j int, w []uint16) {
	strip, width := s.column(j)
	for k := range w[:s.K] {
		w[k] = strip[k*width]
	}
}

// Widen sets x [K] to the numbers of column j.
func (s *HalfStrips) Widen(x []float32, j int) {
	strip, width := s.column(j)
	for k := range x[:s.K] {
		x[k] = WidenHalf(strip[k*width])
	}
}

// Count returns the number of strips.
func (s *HalfStrips) Count() int { return (s.N + stripColumns - 1) / stripColumns }

const (
	// halfFewRows is the number of rows up to which weights are widened in registers.
	halfFewRows = 4
	halfRows    = 128 // rows that share widened weights
)

// HalfScratch is the number of scratch elements that HalfStrips.Multiply needs.
const HalfScratch = (gemmDepth + halfRows) * stripColumns

// Multiply computes the columns of strips i0 ≤ i < i1 of C = A·B, or adds them to C when acc is
// set, for C [m,N] and A [m,K] with row strides ldc and lda. scratch holds HalfScratch elements
// and is overwritten.
func (s *HalfStrips) Multiply(t *HalfTable, i0, i1, m int, a []float32, lda int, acc bool, c []float32, ldc int, scratch []float32) {
	most := max(1, passDepth(s.K))
	for j := i0 * stripColumns; j < min(i1*stripColumns, s.N); j += stripColumns {
		width := s.width(j)
		strip, cols := s.data[j*s.K:][:width*s.K], min(width, s.N-j)
		if m <= halfFewRows && t.mix[0] != nil {
			for i := range m {
				t.mixRow(a[i*lda:][:s.K], most, strip, width, acc, c[i*ldc+j:][:cols], scratch)
			}
			continue
		}
		wide, edge := scratch[:most*width], scratch[gemmDepth*stripColumns:]
		for k := 0; k < max(s.K, 1); k += most {
			depth := min(most, s.K-k)
			t.widen(wide, strip[k*width:][:depth*width])
			for i := 0; i < m; i += halfRows {
				rows, add := min(halfRows, m-i), acc || k > 0
				out := c[i*ldc+j:]
				var left []float32
				if depth > 0 {
					left = a[i*lda+k:]
				}
				if cols == width {
					t.table.Block(rows, width, depth, left, lda, 1, wide, width, out, ldc, add)
					continue
				}
				t.table.Block(rows, width, depth, left, lda, 1, wide, width, edge, width, false)
				for r := range rows {
					row := out[r*ldc:][:cols]
					if add {
						t.table.Add(row, row, edge[r*width:][:cols])
					} else {
						copy(row, edge[r*width:])
					}
				}
			}
		}
	}
}

// mixRow adds to c, or sets it to, the product of a row with a strip of width columns.
func (t *HalfTable) mixRow(a []float32, step int, b []uint16, width int, acc bool, c, edge []float32) {
	if !acc {
		clear(c)
	}
	if len(a) == 0 {
		return
	}
	row := c
	if len(c) < width {
		row = edge[:width]
		clear(row[copy(row, c):])
	}
	_ = b[len(a)*width-1]
	for j := 0; j < width; {
		f, cols := t.mix[2], Lanes
		switch {
		case width-j >= 64:
			f, cols = t.mix[0], 64
		case width-j >= 32:
			f, cols = t.mix[1], 32
		}
		f(len(a), step, &row[j], &a[0], &b[j], width)
		j += cols
	}
	if len(c) < width {
		copy(c, row)
	}
}

func widenGo(dst []float32, x []uint16) {
	for i, h := range x {
		dst[i] = WidenHalf(h)
	}
}

var activeHalf = HalfTables()[0]

// ActiveHalf returns the table in use.
func ActiveHalf() *HalfTable { return activeHalf }

// HalfTables returns all tables that this machine supports, best first and plain Go last.
func HalfTables() (list []*HalfTable) {
	found := false
	for _, t := range Tables[float32]() {
		if found = found || t == Active[float32](); found {
			list = append(list, halfTable(t))
		}
	}
	return list
}

package kernel

import (
	"math"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/arena"
)

// HalfTable holds the routines of one instruction set for numbers of 16 bits in the format
// bfloat16: the upper half of a float32. Arithmetic is that of float32.
type HalfTable struct {
	table *Table[float32]
	mix   [3]func(k, step int, c, a *float32, b *uint16, brs int) // of 64 and 32 columns in pairs, and of 16; nil: none
	widen func(dst []float32, x []uint16)                         // of a multiple of Lanes
	// widenPairs is widen of numbers that lie in pairs, of a multiple of pairColumns.
	widenPairs func(dst []float32, x []uint16)
	// pair sets the words of dst to numbers of y above numbers of x, and reports whether all are finite.
	pair func(dst []float32, x, y []uint16) (finite bool)
}

// HalfStrips is Strips of weights of 16 bits. A product has the bits of Gemm with the weights
// widened to float32.
type HalfStrips struct {
	N, K int
	data []uint16 // strips of stripColumns, the last padded to Lanes
}

// pairColumns is the number of columns that lie in pairs where the width of a strip is a multiple of it:
// column i of them beside column i+Lanes. Two operations then widen two vectors.
const pairColumns = 2 * Lanes

// place returns where column i lies in a row of a strip.
func place(i, width int) int {
	if width%pairColumns != 0 {
		return i
	}
	return i&^(pairColumns-1) + i%Lanes*2 + i/Lanes%2
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
	words := make([]int32, Pad(n)*k/2) // aligned to words, for pairs
	arena.AdviseHugePages(words)
	return &HalfStrips{n, k, unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(words))), 2*len(words))}
}

// viewWords views numbers as words of two.
func viewWords(x []uint16) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/2)
}

// width returns the stored columns of the strip at column j.
func (s *HalfStrips) width(j int) int { return min(stripColumns, Pad(s.N)-j) }

// column returns where column j begins, and the elements from one of its numbers to the next.
func (s *HalfStrips) column(j int) (column []uint16, stride int) {
	if s.K == 0 {
		return nil, 0
	}
	first := j / stripColumns * stripColumns
	return s.data[first*s.K+place(j-first, s.width(first)):], s.width(first)
}

// SetScratch returns the elements of scratch that SetColumns needs for columns of k numbers.
func SetScratch(k int) int { return Lanes * k }

// SetColumns sets columns from j on to w, K numbers for each, and reports whether all are finite. scratch
// has SetScratch(K) elements and is overwritten.
func (s *HalfStrips) SetColumns(t *HalfTable, j int, w []uint16, scratch []float32) (finite bool) {
	finite = true
	for len(w) > 0 && s.K > 0 {
		n := 1
		if strip, width := s.column(j); j%pairColumns == 0 && width%pairColumns == 0 && len(w) >= pairColumns*s.K {
			n = pairColumns
			for i := range Lanes {
				finite = t.pair(scratch[i*s.K:][:s.K], w[i*s.K:][:s.K], w[(Lanes+i)*s.K:][:s.K]) && finite
			}
			t.table.Transpose(viewWords(strip), width/2, scratch, s.K, Lanes, s.K)
		} else {
			for k, x := range w[:s.K] {
				strip[k*width] = x
				finite = finite && isFinite(x)
			}
		}
		j, w = j+n, w[n*s.K:]
	}
	return finite
}

// isFinite reports whether the number of the bits x is.
func isFinite(x uint16) bool { return x&0x7f80 != 0x7f80 }

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
			if width%pairColumns == 0 {
				t.widenPairs(wide, strip[k*width:][:depth*width])
			} else {
				t.widen(wide, strip[k*width:][:depth*width])
			}
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
		case width == stripColumns:
			f, cols = t.mix[0], stripColumns
		case width == pairColumns:
			f, cols = t.mix[1], pairColumns
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

func widenPairsGo(dst []float32, x []uint16) {
	for i, h := range x {
		dst[i&^(pairColumns-1)+i%2*Lanes+i%pairColumns/2] = WidenHalf(h)
	}
}

func pairGo(dst []float32, x, y []uint16) (finite bool) {
	finite = true
	words := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(dst))), 2*len(dst))
	for i := range x {
		words[2*i], words[2*i+1] = x[i], y[i]
		finite = finite && isFinite(x[i]) && isFinite(y[i])
	}
	return finite
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

package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	mathbits "math/bits"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/arena"
)

// byteColumns is the number of columns of a panel of 8-bit weights, and byteGroup the number of
// steps of k that lie side by side for each of them.
const (
	byteColumns = 32
	byteGroup   = 4
	// byteRows rows of A are multiplied with all panels before the next.
	byteRows = 120
	// maxByteSteps is the largest K: sums of so many products fit 32 bits.
	maxByteSteps = 1 << 16
	// weightOffset is what stored weights are larger by than what they stand for: one operand
	// of the machine's products has no sign.
	weightOffset = 128
	byteLevels   = 127 // the largest magnitude
)

// ByteTable holds the products of 8-bit numbers of one instruction set. Their sums are exact
// integers, so all tables give the same bits.
type ByteTable struct {
	Name     string // "avx512-vnni", "avx2" or "generic"
	tiles    []byteTile
	largest  func(x []float32) uint32                            // bits of the largest magnitude
	quantise func(dst []int8, x []float32, factor float32) int32 // rounds factor·x, returns the sum
	pair     func(dst []int16, x []int8)                         // makes ByteRows.Words; nil: tiles multiply Data
}

// HasWords reports whether products read ByteRows.Words.
func (t *ByteTable) HasWords() bool { return t.pair != nil }

// byteTile is a micro-kernel: count tiles of C below one another, from k > 0 groups.
type byteTile struct {
	rows, cols int
	words      func(count, k int, a *int16, ars int, b *uint8, c *float32, crs int, scales *float32, sums *int32, weights, bias *float32)
	run        func(count, k int, a *int8, ars int, b *uint8, c *float32, crs int, scales *float32, sums *int32, weights, bias *float32)
}

// BytePanels is a matrix op(B) [K,N] of weights of 8 bits. Column j stands for integers from
// -127 to 127 times a scale of its own.
type BytePanels struct {
	N, K   int
	Scales []float32 // of the columns, and zeros up to a multiple of 32
	data   []uint8   // panels, groups of four steps, columns, steps
}

// BytePanelsSize returns the bytes of weights [k,n] without their scales.
func BytePanelsSize(n, k int) int { return padTo(n, byteColumns) * padTo(k, byteGroup) }

func padTo(n, unit int) int { return (n + unit - 1) / unit * unit }

// NewBytePanels returns a matrix of zeros: the scales of columns that are not set are 0. It returns an
// error if k is above 65536.
func NewBytePanels(n, k int) (*BytePanels, error) {
	if n < 0 || k < 0 || k > maxByteSteps {
		return nil, fmt.Errorf("8-bit weights [%d,%d]: needs sizes of 0 or more, and columns of no more than %d", n, k, maxByteSteps)
	}
	p := &BytePanels{N: n, K: k, Scales: make([]float32, padTo(n, byteColumns)), data: make([]uint8, BytePanelsSize(n, k))}
	arena.AdviseHugePages(p.data)
	return p, nil
}

// Set sets column j to integers w [K], each from -127 to 127, times scale.
func (p *BytePanels) Set(j int, w []int8, scale float32) {
	p.Scales[j] = scale
	const group = weightOffset * 0x01010101
	to, k := p.column(j), 0
	x := unsafe.Slice((*uint8)(unsafe.Pointer(unsafe.SliceData(w))), len(w))
	for ; k+byteGroup <= p.K; k += byteGroup {
		binary.LittleEndian.PutUint32(to[k*byteColumns:], binary.LittleEndian.Uint32(x[k:])^group) // each + 128
	}
	for ; k < p.K; k++ {
		to[byteStep(k)] = x[k] ^ weightOffset
	}
}

// Column sets w [K] to the integers of column j and returns their scale.
func (p *BytePanels) Column(j int, w []int8) (scale float32) {
	from := p.column(j)
	for k := range w[:p.K] {
		w[k] = int8(from[byteStep(k)] ^ weightOffset)
	}
	return p.Scales[j]
}

// Widen sets x [K] to the numbers that column j stands for.
func (p *BytePanels) Widen(x []float32, j int) {
	scale := p.Scales[j]
	from := p.column(j)
	for k := range x[:p.K] {
		x[k] = float32(int8(from[byteStep(k)]^weightOffset)) * scale
	}
}

// column returns the data from step 0 of column j on.
func (p *BytePanels) column(j int) []uint8 {
	if p.K == 0 {
		return nil
	}
	steps := padTo(p.K, byteGroup)
	return p.data[j/byteColumns*byteColumns*steps+j%byteColumns*byteGroup:]
}

// byteStep returns where step k of a column lies behind step 0.
func byteStep(k int) int { return k/byteGroup*byteGroup*byteColumns + k%byteGroup }

// Quantise sets column j to the integers nearest to w [K] over their scale, the largest
// magnitude over 127. buffer has K elements up to a multiple of 16.
func (p *BytePanels) Quantise(t *ByteTable, j int, w []float32, buffer []int8) {
	factor, scale := byteScale(t.largest(w[:p.K]))
	t.quantise(buffer, w[:p.K], factor)
	p.Set(j, buffer, scale)
}

// byteScale returns what numbers are multiplied by before they are rounded, and what integers
// are multiplied by, for the bits of the largest magnitude. Numbers so small that the factor
// would be infinite become zeros. With a number that is not finite the scale is NaN.
func byteScale(bits uint32) (factor, scale float32) {
	const least = 1e-30
	most := math.Float32frombits(bits)
	switch {
	case bits >= 0x7f800000:
		return 0, float32(math.NaN())
	case most < least:
		return 0, 0
	}
	return byteLevels / most, most / byteLevels
}

// ByteRows is a matrix A of 8-bit numbers, each row with a scale of its own. Few numbers that are far
// larger than the others of their row stay beside it as they are.
type ByteRows struct {
	Data   []int8  // rows that lie ByteStride(K) apart
	Words  []int16 // the same, as the tiles of tables that have words read them; nil for other tables
	Scales []float32
	Sums   []int32 // 128 times the sums of the rows

	Counts []int32   // of the outliers of the rows
	Steps  []int32   // of the outliers, MaxOutliers a row
	Values []float32 // of them
}

const (
	// MaxOutliers is the number of outliers that a row has at most, and outlierShare of how many
	// numbers one may be an outlier.
	MaxOutliers  = 8
	outlierShare = 32
	// outlierLevel is the magnitude, of 127 for the largest, that no other number of a row reaches
	// that has outliers. Without them its steps are an eighth or finer.
	outlierLevel = 16
)

// Rows returns the rows from i on.
func (a *ByteRows) Rows(i, k int) ByteRows {
	rest := ByteRows{a.Data[i*ByteStride(k):], nil, a.Scales[i:], a.Sums[i:], a.Counts[i:], a.Steps[i*MaxOutliers:], a.Values[i*MaxOutliers:]}
	if a.Words != nil {
		rest.Words = a.Words[i*ByteStride(k):]
	}
	return rest
}

// ByteStride returns the elements from one row of k numbers to the next.
func ByteStride(k int) int { return Pad(k) }

// Quantise sets row i to the integers nearest to x [K] over their scale, the largest magnitude
// over 127 of those that are no outliers.
func (a *ByteRows) Quantise(t *ByteTable, i int, x []float32) {
	factor, scale := byteScale(t.largest(x))
	s := ByteStride(len(x))
	row := a.Data[i*s:][:s]
	sum := t.quantise(row, x, factor)
	steps := a.Steps[i*MaxOutliers:][:MaxOutliers]
	count := findOutliers(steps[:min(MaxOutliers, len(x)/outlierShare)], row)
	if a.Counts[i] = int32(count); count > 0 {
		ar := arena.Acquire()
		rest := arena.Take[float32](ar, len(x))
		copy(rest, x)
		for k, step := range steps[:count] {
			a.Values[i*MaxOutliers+k], rest[step] = x[step], 0
		}
		factor, scale = byteScale(t.largest(rest))
		sum = t.quantise(row, rest, factor)
		ar.Release()
	}
	a.Sums[i], a.Scales[i] = weightOffset*sum, scale
	if a.Words != nil {
		t.pair(a.Words[i*s:][:s], row)
	}
}

// findOutliers sets steps to the places of integers of a row that reach outlierLevel, and returns their
// number; 0: there are more than steps has room for. The row has a multiple of 8 integers.
func findOutliers(steps []int32, row []int8) (count int) {
	const high, low = 0x8080808080808080, 0x7f7f7f7f7f7f7f7f
	for k := 0; k < len(row); k += 8 {
		b := row[k:][:8]
		x := uint64(uint8(b[0])) | uint64(uint8(b[1]))<<8 | uint64(uint8(b[2]))<<16 | uint64(uint8(b[3]))<<24 |
			uint64(uint8(b[4]))<<32 | uint64(uint8(b[5]))<<40 | uint64(uint8(b[6]))<<48 | uint64(uint8(b[7]))<<56
		// Each byte plus 15 is below 31 where it is from -15 to 15.
		x = (x&low + 0x0f0f0f0f0f0f0f0f) ^ x&high
		if x = (x&low + 0x6161616161616161 | x) & high; x == 0 {
			continue
		}
		for ; x != 0; x &= x - 1 {
			if count == len(steps) {
				return 0
			}
			steps[count] = int32(k + mathbits.TrailingZeros64(x)/8)
			count++
		}
	}
	return count
}

// ByteScratch returns the elements of scratch that Multiply needs for m rows.
func ByteScratch(m int) int { return min(m, byteRows)*byteColumns + byteColumns }

// Multiply sets columns j0 ≤ j < j1 of C [m,N] to A·op(B), times the scales of rows and then of
// columns, plus bias [N] unless it is nil; each operation is rounded. j0 is a multiple of 32,
// and c begins with column j0. scratch has ByteScratch(m) elements.
func (p *BytePanels) Multiply(t *ByteTable, m int, a *ByteRows, j0, j1 int, c []float32, ldc int, bias, scratch []float32) {
	s, groups := ByteStride(p.K), padTo(p.K, byteGroup)/byteGroup
	for i := 0; i < m; i += byteRows {
		rows := min(byteRows, m-i)
		for j := j0; j < j1; j += byteColumns {
			cols, out, ld := min(byteColumns, j1-j), c[i*ldc+j-j0:], ldc
			if cols < byteColumns {
				out, ld = scratch[byteColumns:], byteColumns
			}
			add := scratch[:byteColumns]
			if bias != nil && j+byteColumns <= len(bias) {
				add = bias[j:]
			} else {
				clear(add)
				if bias != nil {
					copy(add, bias[j:])
				}
			}
			left := a.Rows(i, p.K)
			t.multiplyPanel(rows, groups, &left, s, p.data[j*groups*byteGroup:], out, ld, p.Scales[j:], add)
			if cols < byteColumns {
				for r := range rows {
					copy(c[(i+r)*ldc+j-j0:][:cols], out[r*ld:])
				}
			}
		}
	}
	p.addOutliers(m, a, j0, j1, c, ldc)
}

// addOutliers adds to C the products of outliers with the numbers of the columns, in the order of their
// steps, as Axpy does.
func (p *BytePanels) addOutliers(m int, a *ByteRows, j0, j1 int, c []float32, ldc int) {
	most := int32(0)
	for _, count := range a.Counts[:m] {
		most = max(most, count)
	}
	if most == 0 {
		return
	}
	t := Active[float32]()
	var wide [MaxOutliers][byteColumns]float32 // of the last outliers, which most rows share
	for j := j0; j < j1; j += byteColumns {
		held := [MaxOutliers]int32{}
		for i, count := range a.Counts[:m] {
			row := c[i*ldc+j-j0:][:min(byteColumns, j1-j)]
			for k, step := range a.Steps[i*MaxOutliers:][:count] {
				if held[k] != step+1 {
					held[k] = step + 1
					weights := p.column(j)[byteStep(int(step)):]
					for n := range row {
						wide[k][n] = float32(int8(weights[n*byteGroup]^weightOffset)) * p.Scales[j+n]
					}
				}
				t.Axpy(row, a.Values[i*MaxOutliers+k], wide[k][:len(row)])
			}
		}
	}
}

// multiplyPanel multiplies m rows of A, which lie ars apart, with one panel.
func (t *ByteTable) multiplyPanel(m, groups int, a *ByteRows, ars int, b []uint8, c []float32, ldc int, weights, bias []float32) {
	scales, sums := a.Scales, a.Sums
	if t.tiles == nil || groups == 0 {
		byteTileGo(m, groups, a.Data, ars, b, c, ldc, scales, sums, weights, bias)
		return
	}
	// The last elements that the tiles reach: a slice that is too short panics here.
	if last := (m-1)*ars + groups*byteGroup - 1; t.HasWords() {
		_ = a.Words[last]
	} else {
		_ = a.Data[last]
	}
	_, _ = b[groups*byteGroup*byteColumns-1], c[(m-1)*ldc+byteColumns-1]
	_, _, _, _ = scales[m-1], sums[m-1], weights[byteColumns-1], bias[byteColumns-1]
	i := 0
	for _, tile := range t.tiles {
		count := (m - i) / tile.rows
		for j := 0; j < byteColumns && count > 0; j += tile.cols {
			if tile.words != nil {
				tile.words(count, groups, &a.Words[i*ars], ars, &b[j*byteGroup], &c[i*ldc+j], ldc, &scales[i], &sums[i], &weights[j], &bias[j])
			} else {
				tile.run(count, groups, &a.Data[i*ars], ars, &b[j*byteGroup], &c[i*ldc+j], ldc, &scales[i], &sums[i], &weights[j], &bias[j])
			}
		}
		i += count * tile.rows
	}
}

// byteTileGo is multiplyPanel in plain Go.
func byteTileGo(m, groups int, a []int8, ars int, b []uint8, c []float32, ldc int, scales []float32, sums []int32, weights, bias []float32) {
	for i := range m {
		var acc [byteColumns]int32
		for g := range groups {
			x := a[i*ars+g*byteGroup:][:byteGroup]
			w := b[g*byteColumns*byteGroup:][:byteColumns*byteGroup]
			for j := range acc {
				w := w[j*byteGroup:][:byteGroup]
				acc[j] += int32(x[0])*int32(w[0]) + int32(x[1])*int32(w[1]) + int32(x[2])*int32(w[2]) + int32(x[3])*int32(w[3])
			}
		}
		row := c[i*ldc:][:byteColumns]
		for j := range row {
			y := float32(acc[j]-sums[i]) * scales[i]
			y = float32(y * weights[j])
			row[j] = float32(y + bias[j])
		}
	}
}

func largestGo(x []float32) (most uint32) {
	for _, v := range x {
		most = max(most, math.Float32bits(v)&0x7fffffff)
	}
	return most
}

func quantiseGo(dst []int8, x []float32, factor float32) (sum int32) {
	clear(dst[:Pad(len(x))])
	for i, v := range x {
		n := int8(math.RoundToEven(float64(float32(v * factor))))
		dst[i] = n
		sum += int32(n)
	}
	return sum
}

var genericBytes = &ByteTable{Name: "generic", largest: largestGo, quantise: quantiseGo}

var activeBytes = ByteTables()[0]

// ActiveBytes returns the table in use.
func ActiveBytes() *ByteTable { return activeBytes }

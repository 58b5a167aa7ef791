package tensor

import (
	"fmt"
	"math"
)

// Mat is a view of Rows×Cols elements: element (i,j) is Data[i*Stride+j].
type Mat struct {
	Data               []Float
	Rows, Cols, Stride int
}

// Size returns the product of dimensions, or math.MaxInt if an int cannot hold it.
func Size(dims ...int) int {
	n := 1
	for _, d := range dims {
		if d == 0 {
			return 0
		}
		if n > math.MaxInt/d {
			n = math.MaxInt
		} else {
			n *= d
		}
	}
	return n
}

// NewMat returns a zeroed matrix.
func NewMat(rows, cols int) Mat {
	return Mat{make([]Float, Size(rows, cols)), rows, cols, cols}
}

// Check returns an error for a negative dimension or stride, and for a view beyond its
// data. The error begins with name.
func (m Mat) Check(name string) error {
	if m.Rows < 0 || m.Cols < 0 {
		return fmt.Errorf("%s: negative dimension in [%d,%d]", name, m.Rows, m.Cols)
	}
	if m.Rows == 0 || m.Cols == 0 {
		return nil
	}
	if m.Stride < 0 {
		return fmt.Errorf("%s: negative stride %d", name, m.Stride)
	}
	need := m.Cols
	need += min(Size(m.Rows-1, m.Stride), math.MaxInt-need)
	if need > len(m.Data) {
		return fmt.Errorf("%s: shape [%d,%d] needs %d elements, has %d", name, m.Rows, m.Cols, need, len(m.Data))
	}
	return nil
}

// Row returns row i.
func (m Mat) Row(i int) []Float { return m.Data[i*m.Stride:][:m.Cols:m.Cols] }

// Slice returns the view of rows i0 ≤ i < i1.
func (m Mat) Slice(i0, i1 int) Mat {
	v := Mat{Rows: i1 - i0, Cols: m.Cols, Stride: m.Stride}
	if v.Rows > 0 && len(m.Data) > 0 {
		v.Data = m.Data[i0*m.Stride:]
	}
	return v
}

// Heads is a view of B×H×N×D elements: batch row, head, token, channel.
// Element (b,h,n,d) is Data[b*SB+h*SH+n*SN+d], so a [B·N, H·D] projection is
// seen by its heads without a transpose.
type Heads struct {
	Data       []Float
	B, H, N, D int
	SB, SH, SN int
}

// NewHeads returns zeroed heads in the order [B,H,N,D].
func NewHeads(b, h, n, d int) Heads {
	return HeadsOf(make([]Float, Size(b, h, n, d)), b, h, n, d)
}

// HeadsOf views data as contiguous [B,H,N,D].
func HeadsOf(data []Float, b, h, n, d int) Heads {
	return Heads{data, b, h, n, d, h * n * d, n * d, d}
}

// Split views H·D columns, from column col on, of a [B·N, width] matrix as H heads of width D.
// The result of a projection has this form.
func Split(data []Float, b, n, width, col, h, d int) Heads {
	if len(data) > 0 {
		data = data[col:]
	}
	return Heads{data, b, h, n, d, n * width, d, width}
}

// Head returns the view of one head of one batch row, [N,D].
func (x Heads) Head(b, h int) Mat {
	m := Mat{Rows: x.N, Cols: x.D, Stride: x.SN}
	if x.N > 0 && x.D > 0 {
		m.Data = x.Data[b*x.SB+h*x.SH:]
	}
	return m
}

// Tokens returns the view of tokens n0 ≤ n < n1 of every head.
func (x Heads) Tokens(n0, n1 int) Heads {
	v := x
	v.N = n1 - n0
	if v.N > 0 && x.B > 0 && x.H > 0 && x.D > 0 {
		v.Data = x.Data[n0*x.SN:]
	}
	return v
}

// Check returns an error for a negative dimension or stride, and for a view beyond its data.
// The error begins with name.
func (x Heads) Check(name string) error {
	if x.B < 0 || x.H < 0 || x.N < 0 || x.D < 0 {
		return fmt.Errorf("%s: negative dimension in [%d,%d,%d,%d]", name, x.B, x.H, x.N, x.D)
	}
	// Products of some of the dimensions are numbers of rows and the like.
	if Size(max(x.B, 1), max(x.H, 1), max(x.N, 1), max(x.D, 1)) == math.MaxInt {
		return fmt.Errorf("%s: shape [%d,%d,%d,%d] is beyond any memory", name, x.B, x.H, x.N, x.D)
	}
	if x.B == 0 || x.H == 0 || x.N == 0 || x.D == 0 {
		return nil
	}
	if x.SB < 0 || x.SH < 0 || x.SN < 0 {
		return fmt.Errorf("%s: negative stride in [%d,%d,%d]", name, x.SB, x.SH, x.SN)
	}
	need := x.D
	for _, last := range [3]int{Size(x.B-1, x.SB), Size(x.H-1, x.SH), Size(x.N-1, x.SN)} {
		need += min(last, math.MaxInt-need)
	}
	if need > len(x.Data) {
		return fmt.Errorf("%s: shape [%d,%d,%d,%d] needs %d elements, has %d", name, x.B, x.H, x.N, x.D, need, len(x.Data))
	}
	return nil
}

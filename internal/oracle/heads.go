//go:build !float64

package oracle

// Heads is tensor.Heads in float64.
type Heads struct {
	Data       []float64
	B, H, N, D int
	SB, SH, SN int
}

// Mat is tensor.Mat in float64.
type Mat struct {
	Data               []float64
	Rows, Cols, Stride int
}

// NewMat returns a zeroed matrix.
func NewMat(rows, cols int) Mat { return Mat{make([]float64, rows*cols), rows, cols, cols} }

// Row returns row i.
func (m Mat) Row(i int) []float64 { return m.Data[i*m.Stride:][:m.Cols:m.Cols] }

// Slice returns the view of rows i0 ≤ i < i1.
func (m Mat) Slice(i0, i1 int) Mat {
	v := Mat{Rows: i1 - i0, Cols: m.Cols, Stride: m.Stride}
	if v.Rows > 0 && len(m.Data) > 0 {
		v.Data = m.Data[i0*m.Stride:]
	}
	return v
}

// NewHeads returns zeroed heads in the order [B,H,N,D].
func NewHeads(b, h, n, d int) Heads { return HeadsOf(make([]float64, b*h*n*d), b, h, n, d) }

// HeadsOf views data as contiguous [B,H,N,D].
func HeadsOf(data []float64, b, h, n, d int) Heads {
	return Heads{data, b, h, n, d, h * n * d, n * d, d}
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

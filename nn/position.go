package nn

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Position adds position encodings to embeddings.
type Position interface {
	// Forward adds to x [batch·N,width] the rows of positions start to start+N.
	Forward(x tensor.Mat, batch int, start int64) error
	// Backward adds the gradient of positions from start on, dx [batch·N,width], to
	// the gradients of the weights.
	Backward(dx tensor.Mat, batch int, start int64)
}

// Learned is a trained table of position encodings.
type Learned struct {
	W      *param.Param // [rows,width]
	Offset int          // row of the first position
}

// Forward adds to x [batch·N,width] the rows of positions start to start+N. It returns
// an error if the table ends before.
func (p *Learned) Forward(x tensor.Mat, batch int, start int64) error {
	n, positions := x.Rows/batch, p.W.Shape[0]-p.Offset
	if start > int64(positions-n) {
		return fmt.Errorf("positions: %d are needed, the learned table has %d", uint64(start)+uint64(n), positions)
	}
	if f := (positionForward{p, x, n, int(start) + p.Offset}); x.Rows <= normRows {
		f.RunRange(0, x.Rows)
	} else {
		par.Run(x.Rows, normRows, moveWork*float64(x.Rows)*float64(x.Cols), f)
	}
	return nil
}

// positionForward is Forward of sequences of n rows.
type positionForward struct {
	p        *Learned
	x        tensor.Mat
	n, start int
}

func (f *positionForward) RunRange(i0, i1 int) {
	k := kernel.Active[float]()
	for w := f.x.Cols; i0 < i1; {
		at := i0 % f.n
		x := f.x.Slice(i0, min(i0+f.n-at, i1))
		k.AddRows(x.Data, x.Stride, x.Data, x.Stride, f.p.W.Data[(f.start+at)*w:], w, x.Rows, w)
		i0 += x.Rows
	}
}

// Backward adds dx [batch·N,width] to the gradients of positions from start on.
func (p *Learned) Backward(dx tensor.Mat, batch int, start int64) {
	par.Run(dx.Rows/batch, normRows, moveWork*float64(dx.Rows)*float64(dx.Cols), positionBackward{p, dx, batch, int(start) + p.Offset})
}

// positionBackward computes Backward for a range of positions.
type positionBackward struct {
	p            *Learned
	dx           tensor.Mat
	batch, start int
}

func (f *positionBackward) RunRange(i0, i1 int) {
	k := kernel.Active[float]()
	n, w := f.dx.Rows/f.batch, f.dx.Cols
	g := f.p.W.Grad[(f.start+i0)*w:]
	for b := range f.batch {
		dx := f.dx.Slice(b*n+i0, b*n+i1)
		k.AddRows(g, w, g, w, dx.Data, dx.Stride, dx.Rows, w)
	}
}

// Sinusoidal adds sines and cosines of the position (Vaswani et al. 2017, arXiv
// 1706.03762, section 3.5): channel 2i of position t is
// Amplitude·sin(t/10000^(2i/width)), channel 2i+1 its cosine.
type sinusoidal struct {
	amplitude float64
	freq      []float64      // of each pair of channels
	table     []tensor.Float // of the first positions
}

// NewSinusoidal returns position encodings of the given width. Those of the first rows positions
// are kept in a table, others are computed by Forward.
func NewSinusoidal(width int, amplitude float64, rows int) Position {
	s := &sinusoidal{amplitude: amplitude, freq: make([]float64, (width+1)/2), table: make([]float, rows*width)}
	for i := range s.freq {
		s.freq[i] = math.Pow(10000, -2*float64(i)/float64(width))
	}
	for t := range rows {
		s.setRow(s.table[t*width:][:width], int64(t))
	}
	return s
}

func (s *sinusoidal) setRow(row []float, t int64) {
	for i := range row {
		sin, cos := math.Sincos(float64(t) * s.freq[i/2])
		if i%2 == 0 {
			row[i] = float(s.amplitude * sin)
		} else {
			row[i] = float(s.amplitude * cos)
		}
	}
}

// Forward adds to x [batch·N,width] the rows of positions start to start+N. The error is
// nil.
func (s *sinusoidal) Forward(x tensor.Mat, batch int, start int64) error {
	k := kernel.Active[float]()
	var beyond []float
	for i := range x.Rows {
		t := start + int64(i%(x.Rows/batch))
		row := beyond
		if known := int64(len(s.table) / x.Cols); t < known {
			row = s.table[int(t)*x.Cols:][:x.Cols]
		} else {
			if beyond == nil {
				beyond = make([]float, x.Cols)
				row = beyond
			}
			s.setRow(row, t)
		}
		k.Add(x.Row(i), x.Row(i), row)
	}
	return nil
}

// Backward does nothing: there are no weights.
func (s *sinusoidal) Backward(tensor.Mat, int, int64) {}

package bench

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Gemm describes a product of [N,D] and [D,M], such as the scores of queries and keys.
type Gemm struct {
	N, M, D int
	// TransA and TransB say that an operand is stored transposed.
	TransA, TransB bool
	// Precision stores the second operand as the weights [M,D] of a layer, in fewer bits.
	Precision nn.Precision
}

// Case returns the case of the suite gemm, with the current number of threads.
func (g Gemm) Case() *Case {
	form := []byte("nn")
	if g.TransA {
		form[0] = 't'
	}
	if g.TransB {
		form[1] = 't'
	}
	name, open := string(form), g.openCase
	if g.Precision != nn.Float32 {
		name, open = g.Precision.String(), g.openLayer
	}
	n, m, d := float64(g.N), float64(g.M), float64(g.D)
	return &Case{
		Line: Line{
			Impl: impl, Mechanism: "gemm", Form: name, Direction: forward,
			N: g.N, M: g.M, D: g.D, Threads: par.Threads(),
		},
		AskedForm: name,
		X:         n,
		FLOPs:     gemmFLOPs(g.N, g.M, g.D),
		Need:      4 * (n*d + d*m + n*m),
		open:      open,
	}
}

func (g Gemm) openCase() (*work, error) {
	key := rng.New(1)
	a, b := randomHeads(key.Fold(1), 1, 1, g.N, g.D).Data, randomHeads(key.Fold(2), 1, 1, g.D, g.M).Data
	c := make([]float32, g.N*g.M)
	lda, ldb := g.D, g.M
	if g.TransA {
		lda = g.N
	}
	if g.TransB {
		ldb = g.D
	}
	// Each thread has rows of its own.
	rows := (g.N + par.Threads() - 1) / par.Threads()
	pieces := (g.N + rows - 1) / rows
	return &work{call: func() error {
		par.RunEach(pieces, gemmFLOPs(g.N, g.M, g.D), func(i int) {
			i0 := i * rows
			n := min(rows, g.N-i0)
			from := a[i0*g.D:]
			if g.TransA {
				from = a[i0:]
			}
			ar := arena.Acquire()
			defer ar.Release()
			scratch := arena.Take[float32](ar, kernel.GemmScratch(n, g.M, g.D))
			kernel.Gemm(kernel.Active[float32](), g.TransA, g.TransB, n, g.M, g.D, from, lda, b, ldb, false, c[i0*g.M:], g.M, scratch)
		})
		return nil
	}}, nil
}

// openLayer opens the product of rows with the weights of a layer.
func (g Gemm) openLayer() (*work, error) {
	key := rng.New(1)
	x := tensor.Mat{Data: randomHeads(key.Fold(1), 1, 1, g.N, g.D).Data, Rows: g.N, Cols: g.D, Stride: g.D}
	y := tensor.Mat{Data: make([]float32, g.N*g.M), Rows: g.N, Cols: g.M, Stride: g.M}
	l := nn.Linear{W: &param.Param{Name: "weight", Shape: []int{g.M, g.D}, Data: randomHeads(key.Fold(2), 1, 1, g.M, g.D).Data}}
	if err := l.Compress(g.Precision); err != nil {
		return nil, err
	}
	return &work{call: func() error {
		l.Forward(y, x, false)
		return nil
	}}, nil
}

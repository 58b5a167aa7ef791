package optim

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv
// 1711.05101, algorithm 2). A step subtracts rate·Decay·w from a weight w, as in PyTorch.
type AdamW struct {
	Beta1, Beta2 float64
	Eps          float64
	Decay        float64 // of the weights that have Param.Decay set
	// Rectified selects RAdam (Liu et al. 2020, arXiv 1908.03265, algorithm 2). While ρ ≤ 5,
	// a step follows the mean gradient without division by the root of the mean square. Later
	// it divides, and multiplies the step by the paper's factor r < 1. The authors' program
	// has the limit 5 too; the paper has 4.
	Rectified bool

	params  []*param.Param
	moments []Moment
	pieces  []piece
	size    int
	steps   int64
}

// Moment holds the running means of one weight's gradient and of its square.
type Moment struct{ M, V []tensor.Float }

// piece is the range lo ≤ i < hi of the elements of one weight.
type piece struct{ param, lo, hi int }

// pieceSize is the number of elements that one goroutine updates at a time, stepWork the cost
// of an element in operations.
const (
	pieceSize = 1 << 14
	stepWork  = 32
)

// NewAdamW returns an optimiser for the weights of s, with betas 0.9 and 0.99, epsilon 1e-8
// and no decay. Its fields may be changed.
func NewAdamW(s *param.Set) *AdamW {
	a := &AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, params: s.All(), size: s.Size()}
	for i, p := range a.params {
		a.moments = append(a.moments, Moment{make([]tensor.Float, len(p.Data)), make([]tensor.Float, len(p.Data))})
		for lo := 0; lo < len(p.Data); lo += pieceSize {
			a.pieces = append(a.pieces, piece{i, lo, min(lo+pieceSize, len(p.Data))})
		}
	}
	return a
}

// Step updates the weights at a learning rate. It multiplies their gradients by gradScale,
// such as the result of ClipFactor, but does not change the gradients.
func (a *AdamW) Step(rate, gradScale float64) {
	a.steps++
	correct := func(beta float64) tensor.Float { return tensor.Float(1 / (1 - math.Pow(beta, float64(a.steps)))) }
	plain := kernel.AdamWStep[tensor.Float]{
		Rate: tensor.Float(rate), Beta1: tensor.Float(a.Beta1), Beta2: tensor.Float(a.Beta2), Eps: tensor.Float(a.Eps), GradScale: tensor.Float(gradScale),
		Correct1: correct(a.Beta1), Correct2: correct(a.Beta2),
	}
	if a.Rectified {
		if r := rectifyFactor(a.Beta2, a.steps); r > 0 {
			plain.Correct1 *= tensor.Float(r)
		} else {
			plain.Correct2, plain.Eps = 0, 1 // a denominator of 1
		}
	}
	decayed := plain
	decayed.Decay = tensor.Float(a.Decay)
	par.Run(len(a.pieces), 1, stepWork*float64(a.size), stepPieces{a, plain, decayed})
}

// rectifyFactor returns r_t of RAdam, 0 where it has none.
func rectifyFactor(beta2 float64, steps int64) float64 {
	const least = 5
	t := float64(steps)
	power := math.Pow(beta2, t)
	last := 2/(1-beta2) - 1
	rho := last - 2*t*power/(1-power)
	if rho <= least {
		return 0
	}
	return math.Sqrt((rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho))
}

// stepPieces updates pieces.
type stepPieces struct {
	a                  *AdamW
	undecayed, decayed kernel.AdamWStep[tensor.Float]
}

func (f *stepPieces) RunRange(i0, i1 int) {
	t := kernel.Active[tensor.Float]()
	for _, c := range f.a.pieces[i0:i1] {
		p, m, s := f.a.params[c.param], f.a.moments[c.param], &f.undecayed
		if p.Decay {
			s = &f.decayed
		}
		t.AdamW(p.Data[c.lo:c.hi], p.Grad[c.lo:c.hi], m.M[c.lo:c.hi], m.V[c.lo:c.hi], s)
	}
}

// Steps returns the number of steps made.
func (a *AdamW) Steps() int64 { return a.steps }

// Moments returns the moments in the order of the set's weights, for checkpoints. The result
// shares memory with a. The example Resume of package model saves them beside a model.
func (a *AdamW) Moments() []Moment { return a.moments }

// Restore sets the number of past steps. The caller fills Moments with the moments
// after them. It returns an error if steps is negative.
func (a *AdamW) Restore(steps int64) error {
	if steps < 0 {
		return fmt.Errorf("steps: %d is negative", steps)
	}
	a.steps = steps
	return nil
}

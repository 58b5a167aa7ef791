package nn

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Decay computes the log-decay of an Attention: log_g of attention.Call for each token
// and key head. With a gate it is log σ(x·Wᵀ + b), where x is the row from which the
// key is projected. Without a gate it is LogDecays for all tokens.
type Decay struct {
	Gate      Linear         // [Hkv,width]; W nil: none
	LogDecays []tensor.Float // [Hkv], each 0 or less
}

// Retention returns log γ_h with γ_h = 1 - 2^(-5-h), the log-decay of head h of RetNet
// (Sun et al. 2023, arXiv 2307.08621, section 2.3).
func Retention(h int) float64 { return math.Log1p(-math.Exp2(-5 - float64(h))) }

// RetentionGate returns the gate bias log(γ_h/(1 - γ_h)), with which the log-decay is
// Retention(h) while the weights of the gate are 0.
func RetentionGate(h int) float64 { return math.Log(math.Exp2(5+float64(h)) - 1) }

// isLearned reports whether there is a gate.
func (d *Decay) isLearned() bool { return d != nil && d.Gate.W != nil }

// setLogDecay sets g [rows,Hkv] to the log-decays for x [rows,width]. frozen, if not nil, is
// the packed gate.
func (d *Decay) setLogDecay(g, x tensor.Mat, frozen *PackedLinear) {
	switch {
	case !d.isLearned():
		for i := range g.Rows {
			copy(g.Row(i), d.LogDecays)
		}
		return
	case frozen != nil:
		frozen.Forward(g, x, false)
	default:
		d.Gate.Forward(g, x, false)
	}
	if f, work := (logSigmoid{g}), gateWork*float64(len(g.Data)); work < par.MinWork {
		f.RunRange(0, g.Rows)
	} else {
		par.Run(g.Rows, rowTile, work, f)
	}
}

// addGateGrad adds the gradients through the log-decays to dx [rows,width] and to the weights
// of the gate, given dg [rows,Hkv], the result g of setLogDecay, and x. It overwrites dg.
func (d *Decay) addGateGrad(dx, dg, g, x tensor.Mat) {
	par.Run(g.Rows, rowTile, gateWork*float64(len(g.Data)), logSigmoidGrad{dg, g})
	d.Gate.Backward(dx, dg, x, true)
}

// gateWork is the cost of an element of a gate in operations.
const gateWork = 100

// logSigmoid replaces the elements of g by their log σ.
type logSigmoid struct{ g tensor.Mat }

func (f logSigmoid) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		row := f.g.Row(i)
		for h, x := range row {
			y := float64(x)
			row[h] = float(min(y, 0) - math.Log1p(math.Exp(-math.Abs(y))))
		}
	}
}

// logSigmoidGrad turns gradients of g = log σ(y) into gradients of y: 1 - σ(y) is 1 -
// e^g.
type logSigmoidGrad struct{ dg, g tensor.Mat }

func (f logSigmoidGrad) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		d := f.dg.Row(i)
		for h, g := range f.g.Row(i) {
			d[h] *= float(-math.Expm1(float64(g)))
		}
	}
}

// explainDecay wraps the error of a call in attention.ErrNonFinite if log-decays of the call,
// which a layer computed, are not finite.
func explainDecay(err error, c *attention.Call) error {
	if err == nil || !c.HasDecay() {
		return err
	}
	if rows, _ := attention.NonFinite(c.LogG); rows > 0 {
		return fmt.Errorf("%w: %w", attention.ErrNonFinite, err)
	}
	return err
}

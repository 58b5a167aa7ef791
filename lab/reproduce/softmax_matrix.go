package reproduce

import (
	"errors"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// softmaxMatrix is softmax attention as a program of matrix operations has it:
// the whole N×M matrix of weights is written down, and kept for the backward
// pass. It is what published softmax is, where farfield's own is tiled.
type softmaxMatrix struct{}

func (softmaxMatrix) Traits() attention.Traits {
	return attention.Traits{Name: "softmax, matrix written down", Positive: true, NoCausal: "all keys are seen"}
}

func (softmaxMatrix) Setting() string       { return "softmax matrix" }
func (softmaxMatrix) Params() *param.Set    { return nil }
func (softmaxMatrix) Constants() *param.Set { return nil }

func (softmaxMatrix) Check(c *attention.Call) error {
	if c.KeyMask != nil || c.KeyLens != nil {
		return errors.New("softmax matrix: masks of keys are not computed")
	}
	return nil
}

func (softmaxMatrix) Cost(s attention.Shape) (c headwise.Cost) {
	n, m := float64(s.N), float64(s.M)
	c.FLOPs = 2 * n * m * float64(s.D+s.Dv)
	c.Bytes = 4 * n * m
	return c
}

func (softmaxMatrix) Forward(h *headwise.Head) {
	p := tensor.Mat{Data: h.SaveBuffer(h.Q.Rows * h.K.Rows), Rows: h.Q.Rows, Cols: h.K.Rows, Stride: h.K.Rows}
	h.Multiply(p, h.Q, h.K, false, true, false)
	h.Table.Scale(p.Data, scaleOf(h), p.Data)
	h.SoftmaxRows(p)
	h.Multiply(h.Out, p, h.V, false, false, false)
}

func (softmaxMatrix) Backward(h *headwise.Head, g *headwise.Grads) {
	p := tensor.Mat{Data: h.Saved, Rows: h.Q.Rows, Cols: h.K.Rows, Stride: h.K.Rows}
	dp := h.TakeScratch(p.Rows, p.Cols)
	h.Multiply(g.DV, p, g.DOut, true, false, false)
	h.Multiply(dp, g.DOut, h.V, false, true, false)
	h.SoftmaxRowsGrad(dp, p)
	h.Table.Scale(dp.Data, scaleOf(h), dp.Data)
	h.Multiply(g.DQ, dp, h.K, false, false, false)
	h.Multiply(g.DK, dp, h.Q, true, false, false)
}

func scaleOf(h *headwise.Head) float32 { return float32(1 / math.Sqrt(float64(h.Q.Cols))) }

// writeMatrices has models compute their attention so.
func writeMatrices(u *bench.Update) {
	for _, m := range u.Models() {
		model.WrapMechanisms(m, func(string, attention.Mechanism) attention.Mechanism {
			return headwise.New(softmaxMatrix{})
		})
	}
}

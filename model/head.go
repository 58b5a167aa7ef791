package model

import (
	"github.com/farfield-ml/farfield/internal/losses"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// head turns its input into logits or other numbers. It computes a range of rows at a time and
// recomputes them for the gradient, so that memory does not grow with rows times vocabulary.
type head struct {
	*nn.Linear         // [outputs,width]; the same for all models that share weights
	limit      float64 // of logits, Config.LogitCap
	logits     []float
	capped     []float // of backward
}

// forward sets y [rows,outputs] to the logits of x [rows,width].
func (h *head) forward(y, x tensor.Mat) {
	h.Forward(y, x, false)
	losses.Cap(y, h.limit)
}

// headElements bounds the number of logits of a range; a range has at least headRows
// rows.
const (
	headElements = 1 << 22
	headRows     = 64
)

// eachPart calls f for ranges of rows i0 ≤ i < i1 of x, with a buffer for their logits.
func (h *head) eachPart(x tensor.Mat, f func(i0, i1 int, x, logits tensor.Mat)) {
	vocab := h.W.Shape[0]
	size := max(headElements/vocab, headRows)
	for i0 := 0; i0 < x.Rows; i0 += size {
		i1 := min(i0+size, x.Rows)
		f(i0, i1, x.Slice(i0, i1), resizeMatrix(&h.logits, i1-i0, vocab))
	}
}

// setLosses sets dst [rows] to the loss of each row of x, or to 0 for rows that are not
// counted. It skips ranges without counted rows, such as the first tokens of overlapping
// windows.
func (h *head) setLosses(dst []float64, x tensor.Mat, t *targets) {
	h.eachPart(x, func(i0, i1 int, x, logits tensor.Mat) {
		part := t.slice(i0, i1)
		if !part.hasCounted() {
			clear(dst[i0:i1])
			return
		}
		h.forward(logits, x)
		lossesOf(part, dst[i0:i1], logits)
	})
}

// backward sets dx [rows,width] to scale times the gradient of the sum of the losses.
// It adds to the gradients of the weights.
func (h *head) backward(dx, x tensor.Mat, t *targets, scale float) {
	h.eachPart(x, func(i0, i1 int, x, logits tensor.Mat) {
		h.forward(logits, x)
		var capped tensor.Mat
		if h.limit > 0 {
			capped = resizeMatrix(&h.capped, logits.Rows, logits.Cols)
			copy(capped.Data, logits.Data)
		}
		lossGrad(t.slice(i0, i1), logits, scale)
		losses.CapGrad(logits, capped, h.limit)
		h.Backward(dx.Slice(i0, i1), logits, x, false)
	})
}

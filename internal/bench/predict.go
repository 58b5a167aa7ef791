package bench

import "github.com/farfield-ml/farfield/attention"

// Shares of the peak that sustained work reaches, for predictions: measured on
// AVX-512 and AVX2 machines at D = 32 and 64, with whole loops timed.
const (
	directShare   = 0.45
	linearShare   = 0.60
	trainingShare = 0.35
)

// backwardCost is the arithmetic of a backward pass over that of a forward one.
// Both forms have five products where forward has two: the direct form
// recomputes QKᵀ and makes do·Vᵀ, dq, dk and dv; the linear form recomputes the
// state and makes its gradient, dq, dk and dv.
const backwardCost = 2.5

// Backward returns the operations of a backward pass, from those of forward.
func Backward(flops float64) float64 { return backwardCost * flops }

// Seconds predicts how long operations of attention in a form take, of units
// that can run side by side: one for each key head of each sequence. It is 0
// where the peak was not measured.
func (m Machine) Seconds(flops float64, form attention.Form, units int) float64 {
	share := linearShare
	if form == attention.Direct {
		share = directShare
	}
	return m.seconds(flops, share, max(1, min(m.Threads, units)))
}

// TrainingSeconds predicts how long the operations of training take.
func (m Machine) TrainingSeconds(flops float64) float64 {
	return m.seconds(flops, trainingShare, m.Threads)
}

func (m Machine) seconds(flops, share float64, threads int) float64 {
	if m.Peak == 0 {
		return 0
	}
	return flops / (m.Peak * share * float64(threads))
}

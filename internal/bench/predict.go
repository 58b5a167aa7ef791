package bench

import "github.com/farfield-ml/farfield/attention"

// Shares of the peak that sustained work reaches, for predictions: measured
// with AVX-512 on one core at D = 16 to 128. The linear form makes features for
// each token before it can multiply, which weighs less the more there are: the
// share is linearShare·F/(F+halfFeatures).
const (
	directShare   = 0.75
	linearShare   = 0.93
	halfFeatures  = 250
	trainingShare = 0.5 // assumed
)

// backwardCost is the arithmetic of a backward pass over that of a forward one.
// Both forms have five products where forward has two: the direct form
// recomputes QKᵀ and makes do·Vᵀ, dq, dk and dv; the linear form recomputes the
// state and makes its gradient, dq, dk and dv.
const backwardCost = 2.5

// Backward returns the operations of a backward pass, from those of forward.
func Backward(flops float64) float64 { return backwardCost * flops }

// Seconds predicts how long the operations of attention in p's form take, of
// units that can run side by side: one for each key head of each sequence. It is
// 0 where the peak was not measured.
func (m Machine) Seconds(flops float64, p attention.Plan, units int) float64 {
	share := directShare
	if p.Form == attention.Linear {
		f := float64(p.F)
		share = linearShare * f / (f + halfFeatures)
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

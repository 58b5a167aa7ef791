package bench

// trainingShare is the share of the peak that training is assumed to reach.
const trainingShare = 0.5

// backwardCost is the number of operations of a backward pass over those of a forward pass. Both
// forms have two products forward and five backward: the direct form computes QKᵀ again, and do·Vᵀ,
// dq, dk and dv; the linear form computes the state again, and its gradient, dq, dk and dv.
const backwardCost = 2.5

// BackwardFLOPs returns the operations of a backward pass whose forward pass has flops operations.
func BackwardFLOPs(flops float64) float64 { return backwardCost * flops }

// PredictSeconds predicts how long attention of the given cost takes (see attention.Plan). units is
// the number of parts that can run at the same time, one for each key head of each sequence. It
// returns 0 if the peak was not measured.
func (m Machine) PredictSeconds(cost float64, units int) float64 {
	return m.predictAtPeak(cost, max(1, min(m.Threads, units)))
}

// TrainingSeconds predicts how long the given number of operations takes in training.
func (m Machine) TrainingSeconds(flops float64) float64 {
	return m.predictAtPeak(flops/trainingShare, m.Threads)
}

func (m Machine) predictAtPeak(cost float64, threads int) float64 {
	if m.Peak == 0 {
		return 0
	}
	return cost / (m.Peak * float64(threads))
}

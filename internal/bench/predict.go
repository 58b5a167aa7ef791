package bench

// trainingShare is the share of the peak that training is assumed to reach.
const trainingShare = 0.5

// backwardCost is the ratio of a backward pass's arithmetic to a forward pass's.
// Both forms have five products where forward has two: the direct form
// recomputes QKᵀ and makes do·Vᵀ, dq, dk and dv; the linear form recomputes the
// state and makes its gradient, dq, dk and dv.
const backwardCost = 2.5

// BackwardFLOPs returns the operations of a backward pass for flops operations forward.
func BackwardFLOPs(flops float64) float64 { return backwardCost * flops }

// PredictSeconds predicts how long attention of a cost takes, see attention.Plan, in
// units that can run side by side: one for each key head of each sequence. It is
// 0 where the peak was not measured.
func (m Machine) PredictSeconds(cost float64, units int) float64 {
	return m.predictAtPeak(cost, max(1, min(m.Threads, units)))
}

// TrainingSeconds predicts how long the operations of training take.
func (m Machine) TrainingSeconds(flops float64) float64 {
	return m.predictAtPeak(flops/trainingShare, m.Threads)
}

func (m Machine) predictAtPeak(cost float64, threads int) float64 {
	if m.Peak == 0 {
		return 0
	}
	return cost / (m.Peak * float64(threads))
}

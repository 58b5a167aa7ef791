package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// Attention projects rows to heads of queries, keys and values, lets a
// mechanism mix them, and projects the result back. The mechanism reads the projections in
// place, through strided views. If O.W is nil the outputs of the heads are the result and
// H·D is the width; such a layer has no Step and no Freeze.
type Attention struct {
	Q Linear // [H·D,width]
	K Linear // [Hkv·D,width]
	V Linear // [Hkv·D,width]
	O Linear // [width,H·D]; W nil: none

	// QNorm and KNorm normalise the rows [D] of each head's queries and keys before their
	// rotation; nil: none.
	QNorm, KNorm *RMSNorm
	// ONorm normalises the row [D] of each head's output before O; nil: none. With Residual
	// it adds the normalised row.
	ONorm *RMSNorm

	Decay *Decay // of the keys, where calls are causal; nil: none

	Mechanism attention.Mechanism
	H, Hkv, D int

	// Undivided makes Forward give Mechanism all heads in one call, however long it is.
	Undivided bool
}

// AttentionTrace holds the intermediate results of Attention.Forward for Backward.
type AttentionTrace struct {
	q, o  []tensor.Float // [rows,H·D]
	k, v  []tensor.Float // [context rows,Hkv·D]
	g     []tensor.Float // [context rows,Hkv] log_g; empty without decay
	call  attention.Call
	saved attention.Saved
	grads attention.Grads

	normed, stats   []tensor.Float // a part of the input after Scope.Norm
	rawQ, rawK      []tensor.Float // queries and keys before QNorm and KNorm
	statsQ, statsK  []tensor.Float
	normedO, statsO []tensor.Float // outputs after ONorm, with keep

	heads headProducts     // of a step by heads
	calls []attention.Call // of the parts of a step

	ranks     *comm.Comm      // ranks of the call; nil: none
	rankSaved *sequence.Saved // takes the place of saved with ranks
}

// Aux returns the auxiliary loss of the mechanism in the last Forward with keep set.
func (tr *AttentionTrace) Aux() float64 {
	if tr.ranks != nil {
		return tr.rankSaved.Queries.Aux
	}
	return tr.saved.Aux
}

// Traits returns the traits of the mechanism.
func (a *Attention) Traits() attention.Traits { return a.Mechanism.Traits() }

// FLOPs returns the operations of Forward for n tokens: projections, the gate of a decay and
// the mechanism.
func (a *Attention) FLOPs(n int, causal bool) float64 {
	shape := a.callShape(1, causal)
	shape.N, shape.M = n, n
	weights := a.Q.weightSize() + a.K.weightSize() + a.V.weightSize() + a.O.weightSize()
	if a.Decay.isLearned() {
		weights += a.Decay.Gate.weightSize()
	}
	return 2*float64(n)*weights + a.Mechanism.Plan(shape).FLOPs
}

func (a *Attention) callShape(batch int, causal bool) attention.Shape {
	return attention.Shape{B: batch, H: a.H, Hkv: a.Hkv, D: a.D, Dv: a.D, Causal: causal}
}

// NewTrace returns an empty AttentionTrace.
func (a *Attention) NewTrace() Trace { return new(AttentionTrace) }

// Forward sets y [B·N,width] to base [B·N,width] plus the self-attention of x
// [B·N,width]. y may be base. It returns an error if the mechanism refuses the call.
func (a *Attention) Forward(y, base, x tensor.Mat, s Scope, tr Trace, keep bool) error {
	return a.ForwardTo(y, base, x, x, s, tr, keep)
}

// ForwardTo sets y [B·N,width] to base [B·N,width] plus the attention of x [B·N,width]
// to context [B·M,width]. y may be base. context is x in self-attention. keep saves what
// BackwardTo needs in trace. It returns an error if the mechanism refuses the call.
func (a *Attention) ForwardTo(y, base, x, context tensor.Mat, s Scope, trace Trace, keep bool) error {
	tr := trace.(*AttentionTrace)
	o, err := a.mixHeads(x, context, s, tr, keep)
	if err != nil {
		return err
	}
	if a.O.W == nil {
		copyRows(y, base)
		AddTo(y, o)
		return nil
	}
	o = a.normaliseOutputs(o, tr, keep)
	multiplyRows(true, rowProduct{layer: &a.O, y: y, x: o, base: base, acc: true})
	return nil
}

// mixHeads returns the outputs [B·N,H·D] of the mechanism, computed all at once or in groups
// of heads.
func (a *Attention) mixHeads(x, context tensor.Mat, s Scope, tr *AttentionTrace, keep bool) (tensor.Mat, error) {
	if size := a.groupSize(max(x.Rows, context.Rows), &s); !keep && size < a.Hkv {
		return a.forwardGroups(x, context, s, tr, size)
	}
	err := a.runMechanism(a.projectCall(x, context, s, tr, keep), tr, s.Ranks, keep)
	return viewMatrix(tr.o, x.Rows, a.H*a.D), explainDecay(err, &tr.call)
}

// runMechanism sets out to the outputs of the mechanism for the call of tr.
func (a *Attention) runMechanism(out tensor.Heads, tr *AttentionTrace, ranks *comm.Comm, keep bool) error {
	tr.ranks = ranks
	switch {
	case ranks == nil && keep:
		return a.Mechanism.Forward(out, &tr.call, &tr.saved)
	case ranks == nil:
		return a.Mechanism.Forward(out, &tr.call, nil)
	case tr.rankSaved == nil:
		tr.rankSaved = new(sequence.Saved)
	}
	return sequence.Forward(ranks, a.Mechanism, out, &tr.call, tr.rankSaved)
}

// runMechanismGrad sets the gradients in tr.grads from the gradient do of the outputs o.
func (a *Attention) runMechanismGrad(do, o tensor.Heads, tr *AttentionTrace) error {
	if tr.ranks != nil {
		return sequence.Backward(tr.ranks, a.Mechanism, &tr.grads, do, o, &tr.call, tr.rankSaved)
	}
	return a.Mechanism.Backward(&tr.grads, do, o, &tr.call, &tr.saved)
}

// Step adds to y [B·N,width] the causal self-attention of x [B·N,width] after the tokens
// of state. It returns an error if the state refuses the call.
func (a *Attention) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	tr := trace.(*AttentionTrace)
	out := a.projectCall(x, x, s, tr, false)
	if err := state.(attentionState).State.Step(out, &tr.call); err != nil {
		return explainDecay(err, &tr.call)
	}
	a.O.Forward(y, a.normaliseOutputs(viewMatrix(tr.o, x.Rows, a.H*a.D), tr, false), true)
	return nil
}

// attentionState is the state of the mechanism.
type attentionState struct{ attention.State }

// HeapBytes returns the memory of the state including its working memory.
func (s attentionState) HeapBytes() int64 { return heapBytes(s.State) }

// bytesOf returns the memory of x.
func bytesOf(x []float) int64 {
	return int64(len(x)) * scratch.ElementSize[float]()
}

// heapBytes returns the memory of a state, including its working memory if the state counts it.
func heapBytes(s attention.State) int64 {
	if x, counts := s.(interface{ HeapBytes() int64 }); counts {
		return x.HeapBytes()
	}
	return s.Bytes()
}

func (s attentionState) Clone() State { return attentionState{s.State.Clone()} }

// mechanismState returns the state of the mechanism in a State of Attention, nil for nil.
func mechanismState(s State) attention.State {
	if s == nil {
		return nil
	}
	return s.(attentionState).State
}

// NewSums returns an empty state for Scope.Init and Scope.Final. Its sums are compensated,
// so that their error does not grow with the number of calls. It returns an error if the
// mechanism has no state.
func (a *Attention) NewSums(batch int) (State, error) {
	shape := a.callShape(batch, true)
	shape.Carry = attention.Compensated
	state, err := a.Mechanism.NewState(shape)
	return attentionState{state}, err
}

// CanDivide returns nil if the tokens of causal sequences can be divided among ranks. The state
// of the mechanism needs to be made of sums, or calls need to continue from states
// (Traits.Segments).
func (a *Attention) CanDivide() error {
	state, err := a.Mechanism.NewState(a.callShape(1, true))
	if err != nil || a.Mechanism.Traits().Segments {
		return err
	}
	return states.TotalOf(new(states.Total), state)
}

// NewState returns an empty state of the mechanism, for steps. It returns an error if
// the mechanism has none.
func (a *Attention) NewState(batch int) (State, error) {
	state, err := a.Mechanism.NewState(a.stateShape(batch))
	return attentionState{state}, err
}

// stateShape returns the shape of the layer's states.
func (a *Attention) stateShape(batch int) attention.Shape {
	shape := a.callShape(batch, true)
	if a.hasFusedSteps(batch) {
		shape.Chunk = 1
	}
	return shape
}

// hasFusedSteps reports whether states with chunks of one token absorb a token and answer its
// query in one pass (Plan.Renews).
func (a *Attention) hasFusedSteps(batch int) bool {
	one := a.callShape(batch, true)
	one.N, one.M = 1, 1
	return a.Decay == nil && a.Mechanism.Plan(one).Renews
}

// RestoreState reads a state of the mechanism for batch sequences. It returns an error if data
// is no such state, or if the layer has no states of its heads, widths, chunk, carry or decay.
func (a *Attention) RestoreState(batch int, data []byte) (State, error) {
	state, err := restoreState(a.Mechanism, a.stateShape(batch), a.Decay != nil, data)
	return attentionState{state}, err
}

// restoreState reads a state of a mechanism for a layer whose states have this shape, and whose calls have a
// decay if hasDecay is set or the mechanism has its own. It returns an error if data is of another state than the calls make.
func restoreState(m attention.Mechanism, shape attention.Shape, hasDecay bool, data []byte) (attention.State, error) {
	batch := shape.B
	shape.B = 0 // the header alone
	state, err := m.NewState(shape)
	if err != nil {
		return nil, err
	}
	empty, err := state.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	if err := states.CheckHeader(data, empty, batch, hasDecay || m.Traits().BuiltinDecay); err != nil {
		return nil, err
	}
	return m.RestoreState(data)
}

// Project returns the call of self-attention for x [B·N,width]. Its arrays are memory of
// trace.
func (a *Attention) Project(x tensor.Mat, s Scope, trace Trace) *attention.Call {
	tr := trace.(*AttentionTrace)
	a.projectCall(x, x, s, tr, false)
	return &tr.call
}

// projectCall sets the call of tr and returns the view of its output.
func (a *Attention) projectCall(x, context tensor.Mat, s Scope, tr *AttentionTrace, keep bool) tensor.Heads {
	a.projectRows(x, context, s, tr, keep)
	resizeMatrix(&tr.o, x.Rows, a.H*a.D)
	return a.viewQueries(tr.o, s.B, x.Rows/s.B)
}

// projectRows sets the call of tr.
func (a *Attention) projectRows(x, context tensor.Mat, s Scope, tr *AttentionTrace, keep bool) {
	wide, narrow := a.H*a.D, a.Hkv*a.D
	tr.q = slices.Grow(tr.q[:0], x.Rows*wide)[:x.Rows*wide]
	tr.k = slices.Grow(tr.k[:0], context.Rows*narrow)[:context.Rows*narrow]
	tr.v = slices.Grow(tr.v[:0], context.Rows*narrow)[:context.Rows*narrow]
	q := rowProduct{layer: &a.Q, y: viewMatrix(tr.q, x.Rows, wide), x: x}
	k := rowProduct{layer: &a.K, y: viewMatrix(tr.k, context.Rows, narrow), x: context}
	v := rowProduct{layer: &a.V, y: viewMatrix(tr.v, context.Rows, narrow), x: context}
	if s.Norm != nil {
		normalisedProducts(s.Norm, tr, x, q, k, v)
	} else if isSameView(x, context) {
		multiplyRows(true, q, k, v)
	} else {
		multiplyRows(true, q)
		multiplyRows(true, k, v)
	}
	a.normaliseHeads(tr, keep)
	n, m := x.Rows/s.B, context.Rows/s.B
	tr.call = attention.Call{
		Q: a.viewQueries(tr.q, s.B, n), K: a.viewKeys(tr.k, s.B, m), V: a.viewKeys(tr.v, s.B, m),
		Causal: s.Causal, KeyLens: s.KeyLens, KeyMask: s.KeyMask, Rope: s.Rope, Drop: s.Drop,
		Init: mechanismState(s.Init), Final: mechanismState(s.Final),
	}
	a.setDecay(tr, context, s.B, nil)
}

// normaliseHeads applies QNorm and KNorm to the projections of tr. With keep it saves the
// projections for backwardHeads.
func (a *Attention) normaliseHeads(tr *AttentionTrace, keep bool) {
	if a.QNorm == nil {
		return
	}
	if keep {
		tr.rawQ, tr.rawK = append(tr.rawQ[:0], tr.q...), append(tr.rawK[:0], tr.k...)
	}
	q, k := a.viewRows(tr.q), a.viewRows(tr.k)
	a.QNorm.Forward(q, q, resizeMatrix(&tr.statsQ, q.Rows, 2).Data)
	a.KNorm.Forward(k, k, resizeMatrix(&tr.statsK, k.Rows, 2).Data)
}

// normaliseOutputs returns the outputs o [rows,H·D] of the mechanism after ONorm. It overwrites
// o unless keep is set: Backward reads it.
func (a *Attention) normaliseOutputs(o tensor.Mat, tr *AttentionTrace, keep bool) tensor.Mat {
	if a.ONorm == nil {
		return o
	}
	x := viewMatrix(o.Data, o.Rows*a.H, a.D)
	if keep {
		o = resizeMatrix(&tr.normedO, o.Rows, o.Cols)
	}
	a.ONorm.Forward(viewMatrix(o.Data, x.Rows, a.D), x, resizeMatrix(&tr.statsO, x.Rows, 2).Data)
	return o
}

// backwardOutputs replaces the gradient of normalised outputs by the gradient of the
// outputs of the mechanism.
func (a *Attention) backwardOutputs(do tensor.Mat, tr *AttentionTrace, s *Scratch) {
	if a.ONorm != nil {
		backwardNorm(a.ONorm, a.viewRows(do.Data), a.viewRows(tr.o), tr.statsO, s)
	}
}

// backwardNorm replaces d, the gradient of normalised rows, by the gradient of the rows x.
func backwardNorm(n *RMSNorm, d, x tensor.Mat, stats []float, s *Scratch) {
	dy := s.lendMatrix(d.Rows, d.Cols)
	copyRows(dy, d)
	clear(d.Data)
	n.Backward(d, dy, x, stats)
}

// backwardHeads replaces gradients of normalised queries and keys by gradients of the
// projections.
func (a *Attention) backwardHeads(dq, dk tensor.Mat, tr *AttentionTrace, s *Scratch) {
	if a.QNorm == nil {
		return
	}
	backwardNorm(a.QNorm, a.viewRows(dq.Data), a.viewRows(tr.rawQ), tr.statsQ, s)
	backwardNorm(a.KNorm, a.viewRows(dk.Data), a.viewRows(tr.rawK), tr.statsK, s)
}

// viewRows views projections as a row [D] for each head.
func (a *Attention) viewRows(data []float) tensor.Mat { return viewMatrix(data, len(data)/a.D, a.D) }

// setDecay sets the log-decay of the call of tr from the rows of context, which its keys are
// projected from. It does nothing without a decay. frozen, if not nil, is the packed gate.
func (a *Attention) setDecay(tr *AttentionTrace, context tensor.Mat, b int, frozen *PackedLinear) {
	if a.Decay == nil {
		return
	}
	a.Decay.setLogDecay(resizeMatrix(&tr.g, context.Rows, a.Hkv), context, frozen)
	tr.call.LogG = a.viewRates(tr.g, b, context.Rows/b)
}

// viewRates views a [B·M, Hkv] matrix by its heads.
func (a *Attention) viewRates(data []float, b, m int) tensor.Heads {
	return tensor.Split(data, b, m, a.Hkv, 0, a.Hkv, 1)
}

// viewQueries views a [B·N, H·D] projection by its heads.
func (a *Attention) viewQueries(data []float, b, n int) tensor.Heads {
	return tensor.Split(data, b, n, a.H*a.D, 0, a.H, a.D)
}

// viewKeys views a [B·M, Hkv·D] projection by its heads.
func (a *Attention) viewKeys(data []float, b, m int) tensor.Heads {
	return tensor.Split(data, b, m, a.Hkv*a.D, 0, a.Hkv, a.D)
}

// Backward sets dx [B·N,width] from dy [B·N,width] in self-attention, and adds to the
// gradients of the weights. x and tr are the arguments of Forward. It returns an error
// if the mechanism refuses the call.
func (a *Attention) Backward(dx, dy, x tensor.Mat, tr Trace, s *Scratch) error {
	return a.BackwardTo(dx, dx, dy, x, x, tr, s)
}

// BackwardTo sets dx [B·N,width] from dy [B·N,width], then adds to dcontext [B·M,width]
// and to the gradients of the weights. dcontext is dx in self-attention. x, context and
// trace are the arguments of ForwardTo. dx overlaps neither dy nor x. It returns an
// error if the mechanism refuses the call.
func (a *Attention) BackwardTo(dx, dcontext, dy, x, context tensor.Mat, trace Trace, s *Scratch) error {
	tr := trace.(*AttentionTrace)
	wide, narrow := a.H*a.D, a.Hkv*a.D
	s.takeBack()
	do, dq := s.lendMatrix(x.Rows, wide), s.lendMatrix(x.Rows, wide)
	dk, dv := s.lendMatrix(context.Rows, narrow), s.lendMatrix(context.Rows, narrow)
	o := viewMatrix(tr.o, x.Rows, wide)
	normed := o
	if a.ONorm != nil {
		normed = viewMatrix(tr.normedO, x.Rows, wide)
	}
	grads := [...]weightGrad{{&a.Q, dq, x}, {&a.K, dk, context}, {&a.V, dv, context}, {&a.O, dy, normed}}
	learning := len(grads)
	if a.O.W != nil {
		multiplyRows(false, rowProduct{layer: &a.O, y: do, x: dy})
		a.backwardOutputs(do, tr, s)
	} else {
		copyRows(do, dy)
		learning--
	}
	b, n, m := tr.call.Q.B, tr.call.Q.N, tr.call.K.N
	tr.grads = attention.Grads{DAux: s.Aux, DFinal: s.DFinal, DInit: s.DInit, DQ: a.viewQueries(dq.Data, b, n), DK: a.viewKeys(dk.Data, b, m), DV: a.viewKeys(dv.Data, b, m)}
	var dg tensor.Mat
	if a.Decay.isLearned() {
		dg = s.lendMatrix(context.Rows, a.Hkv)
		tr.grads.DLogG = a.viewRates(dg.Data, b, m)
	}
	if err := a.runMechanismGrad(a.viewQueries(do.Data, b, n), a.viewQueries(tr.o, b, n), tr); err != nil {
		return err
	}
	a.backwardHeads(dq, dk, tr, s)
	addWeights(grads[:learning]...)
	fromQ := rowProduct{layer: &a.Q, y: dx, x: dq}
	fromK := rowProduct{layer: &a.K, y: dcontext, x: dk, acc: true}
	fromV := rowProduct{layer: &a.V, y: dcontext, x: dv, acc: true}
	if isSameView(dx, dcontext) {
		multiplyRows(false, fromQ, fromK, fromV)
	} else {
		multiplyRows(false, fromQ)
		multiplyRows(false, fromK, fromV)
	}
	if a.Decay.isLearned() {
		a.Decay.addGateGrad(dcontext, dg, viewMatrix(tr.g, context.Rows, a.Hkv), context)
	}
	return nil
}

// isSameView reports whether a and b view the same rows.
func isSameView(a, b tensor.Mat) bool {
	return a.Rows == b.Rows && (a.Rows == 0 || &a.Data[0] == &b.Data[0])
}

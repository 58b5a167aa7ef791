package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/train/data"
)

// batchError is an error of an update before its first pass, on all ranks. The update
// changes nothing.
type batchError struct{ error }

// Unwrap returns the error.
func (e batchError) Unwrap() error { return e.error }

// runUpdate makes one update. It returns the error of ctx and changes nothing if ctx ends
// before the gradient is complete. Ranks that divide a sequence complete the update. It
// returns a batchError if a sample cannot be read.
func (t *Trainer) runUpdate(ctx context.Context, o Observer) error {
	start := time.Now()
	c := &t.config
	t.constants = t.constants[:0]
	for _, p := range t.model.Constants().All() {
		t.constants = append(t.constants, p.Data...)
	}
	err := t.nextBatches()
	if err == nil {
		err = t.model.Redraw(t.redrawKey, t.step)
	}
	if err = comm.ShareError(t.job.Ranks, err); err != nil {
		copyInto(t.model.Constants().All(), t.constants)
		if t.job.Ranks == nil || errors.As(err, new(*comm.RankError)) { // else the transport failed
			err = batchError{err}
		}
		return err
	}
	counted, tokens, bytes, err := t.countTargets()
	if err != nil {
		return err
	}
	if counted == 0 {
		return comm.ShareError(t.job.Ranks, fmt.Errorf("step %d: nothing is asked of any sample", t.step+1))
	}
	lost, err := t.accumulateGradients(ctx, counted, o)
	if err = t.job.syncError(err); err != nil {
		copyInto(t.model.Constants().All(), t.constants)
		return wrapDiverged(t.step+1, err)
	}
	loss, aux, err := t.sumPasses(lost)
	if err != nil {
		return err
	}
	if t.adapters != nil {
		t.adapters.setGradients()
	}
	norm := optim.GradNorm(t.trained)
	if x := loss + aux + norm; math.IsNaN(x) || math.IsInf(x, 0) {
		return comm.ShareError(t.job.Ranks, fmt.Errorf("step %d: %w: loss is %v, the norm of the gradient %v", t.step+1, ErrDiverged, loss, norm))
	}
	rate := t.schedule.Rate(t.step)
	t.optim.Step(rate, optim.ClipFactor(norm, c.Clip))
	if t.adapters != nil {
		t.adapters.apply()
	}
	t.step++
	t.needsRow, t.needsLook, t.needsSave = true, true, true
	spent := time.Since(start)
	t.elapsed += spent
	t.row = Step{
		Step: t.step, Loss: loss, Aux: aux, Rate: rate, GradNorm: norm,
		Speed: float64(tokens) / max(spent.Seconds(), 1e-9), Elapsed: t.elapsed.Seconds(),
	}
	if bytes > 0 {
		t.row.Bits = perByte(loss, counted, bytes)
	}
	return nil
}

// copyInto copies numbers into the tensors of list, one after another.
func copyInto(list []*param.Param, numbers []float32) {
	at := 0
	for _, p := range list {
		at += copy(p.Data, numbers[at:])
	}
}

// countTargets returns the numbers of targets, positions and text bytes of the whole
// update.
func (t *Trainer) countTargets() (counted, tokens, bytes int64, err error) {
	own := &t.rankCounts // whole numbers far below 2⁵³
	clear(own[:])
	for i, last := t.job.passRange(len(t.batches), t.job.Ranks.Rank()); i < last; i++ {
		b := &t.batches[i]
		own[0] += float64(b.counted)
		if b.counted > 0 {
			own[1] += float64(b.B * b.N)
			if t.text != nil {
				own[2] += float64(t.text.Vocab.CountBytes(b.Targets))
			}
		}
	}
	all, err := t.gatherRanks(own[:])
	if t.job.isSequenceParallel() && err == nil {
		all = all[:1] // every rank has all of every pass
	}
	for _, x := range all {
		counted, tokens, bytes = counted+int64(x[0]), tokens+int64(x[1]), bytes+int64(x[2])
	}
	return counted, tokens, bytes, err
}

// gatherRanks returns the numbers own of every rank, in their order.
func (t *Trainer) gatherRanks(own []float64) ([][]float64, error) {
	if t.job.Ranks == nil {
		t.singleRank[0] = own
		return t.singleRank[:], nil
	}
	return comm.AllGather(t.job.Ranks, own)
}

// accumulateGradients runs the passes of this rank and returns pairs of loss and auxiliary loss,
// one for each pass. A pass is weighted by its share of the counted targets, so that the sum over
// passes is the mean over all targets. With several passes, each gradient becomes a leaf of t.tree.
func (t *Trainer) accumulateGradients(ctx context.Context, counted int64, o Observer) (lost []float64, err error) {
	params := t.model.Params()
	params.ZeroGrad()
	first, last := t.job.passRange(len(t.batches), t.job.Ranks.Rank())
	t.tree.Reset(first)
	t.passLosses = t.passLosses[:0]
	for i := first; i < last; i++ {
		if err := ctx.Err(); err != nil && !t.job.isSequenceParallel() {
			return nil, err
		}
		b := &t.batches[i]
		var loss, aux float64
		if b.counted > 0 {
			share := float64(b.counted) / float64(counted)
			if loss, err = t.runPass(ctx, &b.Batch, float32(share), o); err != nil {
				return nil, err
			}
			loss, aux = share*loss, share*t.model.Aux()
		}
		t.passLosses = append(t.passLosses, loss, aux)
		if len(t.batches) == 1 || t.job.isSequenceParallel() {
			continue
		}
		t.flatGrads = t.flatGrads[:0]
		for _, p := range params.All() {
			t.flatGrads = append(t.flatGrads, p.Grad...)
		}
		t.tree.AddLeaf(t.flatGrads)
		params.ZeroGrad()
	}
	return t.passLosses, nil
}

// sumPasses adds the losses and the gradients of all passes of the update.
func (t *Trainer) sumPasses(lost []float64) (loss, aux float64, err error) {
	all, err := t.gatherRanks(lost)
	if err != nil {
		return 0, 0, err
	}
	for _, own := range all {
		for ; len(own) > 0; own = own[2:] {
			loss += own[0]
			aux += own[1]
		}
	}
	if t.job.isSequenceParallel() {
		for _, p := range t.model.Params().All() {
			if err := comm.AllReduce(t.job.Ranks, p.Grad); err != nil {
				return 0, 0, err
			}
		}
		return loss, aux, nil
	}
	if len(t.batches) == 1 {
		return loss, aux, nil
	}
	part := func(rank int) (lo, hi int) { return t.job.passRange(len(t.batches), rank) }
	if err := t.tree.SumRanks(t.job.Ranks, t.flatGrads, part); err != nil {
		return 0, 0, err
	}
	at := 0
	for _, p := range t.model.Params().All() {
		at += copy(p.Grad, t.flatGrads[at:])
	}
	return loss, aux, nil
}

// runPass adds share times the gradient of the mean loss of b, and returns that loss.
func (t *Trainer) runPass(ctx context.Context, b *model.Batch, share float32, o Observer) (loss float64, err error) {
	if t.job.isSequenceParallel() {
		return t.model.TrainDivided(ctx, t.job.Ranks, b, share)
	}
	if size := t.config.Segment; size > 0 && b.N > size {
		return t.model.TrainSegments(ctx, b, size, share, func(done, all int) error {
			if o.Progress != nil {
				o.Progress(done, all)
			}
			return ctx.Err()
		})
	}
	if loss, err = t.model.Forward(ctx, b); err != nil {
		return 0, err
	}
	return loss, t.model.Backward(share)
}

// nextBatches fills the batches of this rank for the next update: windows at random
// positions of a text, otherwise the next samples.
func (t *Trainer) nextBatches() error {
	c := &t.config
	size, length := c.BatchShape(t.step)
	key := t.orderKey.Fold(uint64(t.step))
	for i, last := t.job.passRange(len(t.batches), t.job.Ranks.Rank()); i < last; i++ {
		samples := t.collector.sampleBuffer(size)
		for j := range samples {
			n, s := i*size+j, &samples[j]
			var err error
			if t.windows != nil {
				err = t.windows.DrawWindow(s, length, key, uint64(n))
			} else {
				err = t.source.Sample(s, data.Train, t.sampleIndex(t.step*size*len(t.batches)+n))
			}
			if err == nil {
				err = t.collector.spec.CheckSample(s)
			}
			if err != nil {
				return err
			}
		}
		b := &t.batches[i]
		t.collector.packBatch(b, samples)
		if b.Key = t.dropoutKey.Fold(uint64(t.step)); len(t.batches) > 1 {
			b.Key = b.Key.Fold(uint64(i))
		}
	}
	return nil
}

// sampleIndex returns the sample for position i of the run. Each epoch visits every
// sample once, in an order of its own. An endless task gives successive samples from a
// start that the seed chooses.
func (t *Trainer) sampleIndex(i int) int {
	n := t.collector.spec.Count[data.Train]
	if n == data.Endless {
		return int(t.orderKey.Uint64(0)>>2&(math.MaxInt>>1)) + i
	}
	if t.groups.lengths != nil {
		return t.groups.sampleAt(i, n, t.orderKey)
	}
	return t.orderKey.Fold(uint64(i/n)).Permute(i%n, n)
}

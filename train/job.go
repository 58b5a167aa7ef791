package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/param"
)

// Job says which processes make a run: this process alone, or the ranks of a job. All
// ranks call the same functions with the same configuration and data.
//
// By default the ranks divide the passes of an update (Config.Accumulate) and the samples
// of an evaluation. Each pass has a gradient of its own. Losses are added in the order of
// the passes, gradients in pairs of neighbours (comm.Tree). So a run has the same bits
// for any number of ranks, including one process. New splits passes until each rank has
// one, and the configuration of the run records the split.
//
// With DivideSequence the ranks divide the tokens of each window instead
// (model.TrainDivided). A window may then be longer than the memory of one rank allows.
// Gradients are added in the order of the ranks. Losses equal the losses of one process
// up to the rounding of sums.
//
// All ranks hold the weights and the state of the optimiser. Rank 0 alone reads and
// writes the folder of the run; observers of other ranks may be empty.
type Job struct {
	Ranks  *comm.Comm // nil: this process alone
	Divide Division
	// Progress is called during Evaluate, after each batch of samples, with the scored samples and
	// all samples of this rank. It may be nil.
	Progress func(done, all int)
}

// Division says what the ranks of a job divide among them. The zero value is DivideBatch.
type Division string

// The divisions.
const (
	DivideBatch    Division = "batch"
	DivideSequence Division = "sequence"
)

// isSequenceParallel reports whether ranks divide the tokens of a window.
func (j Job) isSequenceParallel() bool { return j.Divide == DivideSequence && j.Ranks.Size() > 1 }

// isRankZero reports whether this process is rank 0, which owns the folder.
func (j Job) isRankZero() bool { return j.Ranks.Rank() == 0 }

// rankRange returns the range lo ≤ i < hi of n parts that this rank takes.
func (j Job) rankRange(n int) (lo, hi int) { return partRange(n, j.Ranks.Rank(), j.Ranks.Size()) }

// partRange returns the range lo ≤ i < hi of n parts that one rank of size takes.
func partRange(n, rank, size int) (lo, hi int) {
	a, b := sequence.PartRange(int64(n), rank, size)
	return int(a), int(b)
}

// passRange returns the range lo ≤ i < hi of an update's n passes that a rank computes.
func (j Job) passRange(n, rank int) (lo, hi int) {
	if j.isSequenceParallel() {
		return 0, n
	}
	return partRange(n, rank, j.Ranks.Size())
}

// isWriter reports whether this rank writes the folder of the run.
func (t *Trainer) isWriter() bool { return t.dir != "" && t.job.isRankZero() }

// splitPasses splits the passes of an update equally until there is one for each rank. It
// returns an error if the batch sizes cannot be split that far.
func (j Job) splitPasses(c Config) (Config, error) {
	ranks := j.Ranks.Size()
	if j.isSequenceParallel() || c.Accumulate < 1 || c.Batch < 1 { // PrepareTask reports these
		return c, nil
	}
	for cut := 1; cut <= c.Batch; cut++ {
		if d, ok := c.cutPasses(cut); ok && d.Accumulate >= ranks {
			return d, nil
		}
	}
	return c, fieldErrorf("{Batch}: %d passes of %d samples ({FirstBatch} %d) cannot be cut into one or more for each of %d ranks", c.Accumulate, c.Batch, c.FirstBatch, ranks)
}

// cutPasses returns c with every pass split into n. An update has the same samples, unless
// GroupLengths sorts the smaller batches in other groups. cutPasses reports false if a
// batch size is no multiple of n.
func (c Config) cutPasses(n int) (Config, bool) {
	d := c
	d.Batch, d.FirstBatch, d.Accumulate = c.Batch/n, c.FirstBatch/n, c.Accumulate*n
	for stage := range c.countStages() {
		whole, _ := c.stageShape(stage)
		if part, _ := d.stageShape(stage); part*n != whole {
			return c, false
		}
	}
	return d, true
}

// checkPasses returns an error if an update has fewer passes than there are ranks.
func (j Job) checkPasses(c *Config) error {
	if ranks := j.Ranks.Size(); c.Accumulate < ranks && !j.isSequenceParallel() {
		return fieldErrorf("{Accumulate}: an update has %d passes, too few for %d ranks; continue with %d ranks or fewer", c.Accumulate, ranks, c.Accumulate)
	}
	return nil
}

// sharedConfig is a Config with the fields that its JSON does not have.
type sharedConfig struct {
	Config   Config
	Complete string
	Tokens   *task.Tokens
}

// ShareConfig returns the configuration c of rank 0 on all ranks, with the tokens of its
// model. It returns an error on every rank if one rank has one.
func (j Job) ShareConfig(c Config) (Config, error) {
	if j.Ranks == nil {
		return c, nil
	}
	all, err := comm.CallOnRankZero(j.Ranks, func() (sharedConfig, error) { return sharedConfig{c, c.complete, c.tokens}, nil })
	if err = comm.ShareError(j.Ranks, err); err != nil || j.isRankZero() {
		return c, err
	}
	c = all.Config
	c.complete, c.tokens = all.Complete, all.Tokens
	return c, nil
}

// agreeOnRun returns an error on every rank if one rank has one, or if the ranks differ
// in configuration, data or instruction set.
func (j Job) agreeOnRun(t *Trainer, err error) error {
	if err = comm.ShareError(j.Ranks, err); err != nil || j.Ranks == nil {
		return err
	}
	config, err := json.Marshal(t.config)
	if err = comm.ShareError(j.Ranks, err); err != nil {
		return err
	}
	return comm.CheckAgreement(j.Ranks,
		comm.Field{Name: "instructions (FARFIELD_ISA)", Value: kernel.Active[float32]().Name},
		comm.Field{Name: "divide", Value: string(j.Divide)},
		comm.Field{Name: "configuration", Value: string(config)},
		comm.Field{Name: "data", Value: t.digest},
	)
}

// syncError returns an error on every rank if one rank failed or was cancelled.
func (j Job) syncError(err error) error {
	if j.Ranks == nil {
		return err
	}
	own := []byte{0}
	switch {
	case isCanceled(err):
		own[0] = 1
	case err != nil:
		own[0] = 2
	}
	all, failed := comm.AllGather(j.Ranks, own)
	if failed != nil {
		return failed
	}
	var stop error
	if err == nil {
		err = context.Canceled
	}
	for r, of := range all {
		switch {
		case of[0] == 2:
			if own[0] != 2 {
				err = nil // this rank did not fail
			}
			return comm.ShareError(j.Ranks, err)
		case of[0] == 1 && stop == nil:
			stop = &comm.RankError{Rank: r, Err: err}
		}
	}
	return stop
}

// isCanceled reports whether err is the end of a context.
func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// broadcastState sends the model and the optimiser of rank 0, read from a checkpoint, to
// the other ranks.
func (t *Trainer) broadcastState() error {
	if err := t.broadcastModel(); err != nil {
		return err
	}
	for _, m := range t.optim.Moments() {
		for _, x := range [][]float32{m.M, m.V} {
			if err := comm.Broadcast(t.job.Ranks, x, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// stateTensors returns the weights, the constants and the adapters.
func (t *Trainer) stateTensors() []*param.Param {
	return append(modelTensors(t.model), t.adapters.tensors()...)
}

// broadcastModel sends the weights, constants and adapters of rank 0 to the other ranks.
func (t *Trainer) broadcastModel() error {
	for _, p := range t.stateTensors() {
		if err := comm.Broadcast(t.job.Ranks, p.Data, 0); err != nil {
			return err
		}
	}
	return nil
}

// agreeOnWeights returns an error if the weights of a rank differ from those on rank 0,
// as after a fault of a machine.
func (t *Trainer) agreeOnWeights() error {
	if t.job.Ranks.Size() == 1 {
		return nil
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	var b []byte
	for _, p := range t.stateTensors() {
		b = b[:0]
		for _, x := range p.Data {
			bits := math.Float32bits(x)
			b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		sum.Write(b)
	}
	return comm.CheckAgreement(t.job.Ranks, comm.Field{Name: fmt.Sprintf("weights after update %d", t.step), Value: fmt.Sprintf("%08x", sum.Sum32())})
}

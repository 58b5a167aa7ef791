package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/comm/sequence"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// Job is where runs are made: in this process alone, or by the ranks of a job, which
// all call the same with the same configuration and the same data.
//
// The ranks divide the passes of an update (Config.Accumulate), each of which has its
// gradient alone, and the samples of an evaluation. Losses are added in the order of the
// passes, gradients in pairs of neighbouring ones (comm.Tree): a run has the same bits
// for any number of ranks, one process too. New cuts passes so that each rank has one,
// which the configuration of the run then says.
//
// With Sequence they divide the tokens of each window instead (model.TrainDivided), which
// then may be longer than one of them has memory for. Gradients are added in the order of
// the ranks: losses are those of one process but for the rounding of sums.
//
// All ranks have the weights and what the optimiser remembers. Rank 0 alone reads and
// writes the folder of the run; observers of the others may stay empty.
type Job struct {
	Ranks  *comm.Comm // nil: this process alone
	Divide string     // what ranks divide: Batch, also if it is empty, or Sequence
}

// What ranks may divide.
const (
	DivideBatch    = "batch"
	DivideSequence = "sequence"
)

// isSequenceParallel reports whether ranks divide the tokens of a window.
func (j Job) isSequenceParallel() bool { return j.Divide == DivideSequence && j.Ranks.Size() > 1 }

// isRankZero reports whether this process speaks for all ranks.
func (j Job) isRankZero() bool { return j.Ranks.Rank() == 0 }

// rankRange returns which of n parts this rank has.
func (j Job) rankRange(n int) (lo, hi int) { return partRange(n, j.Ranks.Rank(), j.Ranks.Size()) }

func partRange(n, rank, size int) (lo, hi int) {
	a, b := sequence.PartRange(int64(n), rank, size)
	return int(a), int(b)
}

// passRange returns which passes of an update a rank has.
func (t *Trainer) passRange(rank int) (lo, hi int) {
	if t.job.isSequenceParallel() {
		return 0, len(t.batches)
	}
	return partRange(len(t.batches), rank, t.job.Ranks.Size())
}

// isWriter reports whether this rank writes the folder of the run.
func (t *Trainer) isWriter() bool { return t.dir != "" && t.job.isRankZero() }

// splitPasses cuts the passes of an update into as many equal ones as give each rank one.
func (j Job) splitPasses(c Config) (Config, error) {
	ranks := j.Ranks.Size()
	if j.isSequenceParallel() || c.Accumulate < 1 || c.Batch < 1 { // Prepare says what cannot be
		return c, nil
	}
	for cut := 1; cut <= c.Batch; cut++ {
		if d, ok := c.cutPasses(cut); ok && d.Accumulate >= ranks {
			return d, nil
		}
	}
	return c, fmt.Errorf("batch: %d passes of %d samples (first_batch %d) cannot be cut into one or more for each of %d ranks", c.Accumulate, c.Batch, c.FirstBatch, ranks)
}

// cutPasses returns c with so many passes for each, of the same samples together, and whether
// that can be.
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

// checkPasses reports a run whose updates have less passes than there are ranks.
func (j Job) checkPasses(c *Config) error {
	if ranks := j.Ranks.Size(); c.Accumulate < ranks && !j.isSequenceParallel() {
		return fmt.Errorf("accumulate: an update has %d passes, too few for %d ranks; continue with %d ranks or fewer", c.Accumulate, ranks, c.Accumulate)
	}
	return nil
}

// agreeOnRun reports an error of any rank, and ranks that are about to train something else,
// or with other bits.
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
		comm.Field{Name: "divide", Value: j.Divide},
		comm.Field{Name: "configuration", Value: string(config)},
		comm.Field{Name: "data", Value: t.digest},
	)
}

// syncError returns on all ranks that one has failed, or that one was stopped.
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
				err = nil // this rank goes well
			}
			return comm.ShareError(j.Ranks, err)
		case of[0] == 1 && stop == nil:
			stop = &comm.RankError{Rank: r, Err: err}
		}
	}
	return stop
}

// isCanceled reports the end of a context.
func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// broadcastState gives the other ranks what rank 0 has read of a checkpoint.
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

// broadcastModel gives the other ranks the model of rank 0.
func (t *Trainer) broadcastModel() error {
	for _, p := range modelTensors(t.model) {
		if err := comm.Broadcast(t.job.Ranks, p.Data, 0); err != nil {
			return err
		}
	}
	return nil
}

// agreeOnWeights reports ranks that have other weights than rank 0, as after an error of
// a machine.
func (t *Trainer) agreeOnWeights() error {
	if t.job.Ranks.Size() == 1 {
		return nil
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	var b []byte
	for _, p := range modelTensors(t.model) {
		b = b[:0]
		for _, x := range p.Data {
			bits := math.Float32bits(x)
			b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		sum.Write(b)
	}
	return comm.CheckAgreement(t.job.Ranks, comm.Field{Name: fmt.Sprintf("weights after update %d", t.step), Value: fmt.Sprintf("%08x", sum.Sum32())})
}

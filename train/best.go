package train

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/model"
)

// updateBest keeps the weights if no validation score is better. Equal scores, frequent
// for counts of few samples, are ordered by loss. In a folder the next checkpoint keeps
// them.
func (t *Trainer) updateBest(s Score) {
	if b := t.best; b != nil && !s.Metric.IsBetter(s.Value, b.Value) && (s.Value != b.Value || s.Loss >= b.Loss) {
		t.best = &checkpoint.Best{Step: b.Step, Value: b.Value, Loss: b.Loss, EvalsSince: b.EvalsSince + 1}
		return
	}
	t.best = &checkpoint.Best{Step: t.step, Value: s.Value, Loss: s.Loss}
	if t.dir == "" {
		t.bestWeights = t.bestWeights[:0]
		for _, p := range modelTensors(t.model) {
			t.bestWeights = append(t.bestWeights, slices.Clone(p.Data))
		}
	}
}

// writeBest writes the best checkpoint.
func (t *Trainer) writeBest() error {
	m := checkpoint.Manifest{Step: t.step, Elapsed: t.elapsed.Seconds(), Best: t.best, Data: t.digest}
	_, err := writeCheckpointFolder(filepath.Join(t.dir, checkpointsFolder), bestName, m, t.writeModel)
	return err
}

// repairBest writes the best checkpoint from the latest one, if this has the best score and
// a kill came between the two. It returns an error if an earlier best one is missing, damaged
// or of another update.
func (t *Trainer) repairBest() error {
	if t.best == nil {
		return nil
	}
	path := filepath.Join(t.dir, checkpointsFolder, bestName)
	m, err := checkpoint.Read(path)
	switch {
	case t.best.IsAt(t.step) && (err != nil || m.Step != t.step):
		return t.writeBest()
	case err != nil:
		return fmt.Errorf("%w; it has the weights of update %d, by which the run is scored", err, t.best.Step)
	case m.Step < t.best.Step: // a later one is written again by the same updates
		return fmt.Errorf("%s: is of update %d, the best was %d", path, m.Step, t.best.Step)
	}
	return nil
}

// restoreBest gives the model the weights with the best validation score.
func (t *Trainer) restoreBest() error {
	if t.dir == "" {
		for i, p := range modelTensors(t.model) {
			copy(p.Data, t.bestWeights[i])
		}
		return nil
	}
	var err error
	if t.isWriter() {
		err = readBest(t.model, filepath.Join(t.dir, checkpointsFolder, bestName), t.best.Step)
	}
	if err = comm.ShareError(t.job.Ranks, err); err != nil {
		return err
	}
	return t.broadcastModel()
}

// readBest gives m the weights of the checkpoint path. It returns an error if the
// checkpoint is of another update than step.
func readBest(m *model.Model, path string, step int) error {
	made, err := checkpoint.Read(path)
	if err != nil {
		return err
	}
	if made.Step != step {
		return fmt.Errorf("%s: is of update %d, the best was %d", path, made.Step, step)
	}
	chosen, err := model.LoadWith(path, m.Config().Factories)
	if err != nil {
		return err
	}
	from := modelTensors(chosen)
	for i, p := range modelTensors(m) {
		copy(p.Data, from[i].Data)
	}
	return nil
}

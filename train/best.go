package train

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/model"
)

// choose keeps the weights if none scored better. Of equal scores, of which a count
// of few samples has many, the one of less loss is better.
func (t *Trainer) choose(s Score) error {
	if b := t.best; b != nil && !s.Metric.IsBetter(s.Value, b.Value) && (s.Value != b.Value || s.Loss >= b.Loss) {
		t.best = &best{b.Step, b.Value, b.Loss, b.Since + 1}
		return nil
	}
	t.best = &best{Step: t.step, Value: s.Value, Loss: s.Loss}
	if t.dir == "" {
		t.weights = t.weights[:0]
		for _, p := range numbersOf(t.model) {
			t.weights = append(t.weights, slices.Clone(p.Data))
		}
		return nil
	}
	if !t.writes() {
		return nil
	}
	m := manifest{Step: t.step, Elapsed: t.elapsed.Seconds(), Best: t.best, Data: t.digest}
	_, err := place(filepath.Join(t.dir, folder), bestName, m, t.write)
	return err
}

// restore gives the model the weights that were chosen.
func (t *Trainer) restore() error {
	if t.dir == "" {
		for i, p := range numbersOf(t.model) {
			copy(p.Data, t.weights[i])
		}
		return nil
	}
	var err error
	if t.writes() {
		err = t.readBest()
	}
	if err = comm.Together(t.job.Ranks, err); err != nil {
		return err
	}
	return t.shareNumbers()
}

// readBest gives the model the weights that were chosen, from their file.
func (t *Trainer) readBest() error {
	path := filepath.Join(t.dir, folder, bestName)
	m, err := readManifest(path)
	if err != nil {
		return err
	}
	if m.Step != t.best.Step {
		return fmt.Errorf("%s: is of update %d, the best was %d", path, m.Step, t.best.Step)
	}
	chosen, err := model.Load[float32](path)
	if err != nil {
		return err
	}
	from := numbersOf(chosen)
	for i, p := range numbersOf(t.model) {
		copy(p.Data, from[i].Data)
	}
	return nil
}

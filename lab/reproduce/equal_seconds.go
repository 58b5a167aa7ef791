package reproduce

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

// equalNote says how equal seconds are counted.
const equalNote = " Equal seconds: each mechanism makes as many updates as take the time of softmax's, by a measurement in turns before the training. Differences use a later measurement. Its own seconds depend on what else the machine does."

// equalRace is how long updates of a mechanism and of softmax are timed, for each length
// of windows.
const equalRace = 5 * time.Second

// equalConfig decides a training whose updates are counted in seconds of softmax.
type equalConfig struct {
	train.Config
	EqualSeconds bool `json:"equal_seconds"`
}

// equalise makes p a training of as many seconds as softmax's of c's updates.
func (l *lesson) equalise(p *Piece, c train.Config, folder string) {
	p.Config = equalConfig{c, true}
	p.run = func(w *Work) (any, error) {
		c.Folder = folder
		return l.learn(w, c, func(c *train.Config, src task.Source) error {
			ratio, err := l.measureRatio(w, c, src)
			if err != nil {
				return err
			}
			stretchUpdates(c, max(1, int(math.Round(ratio*float64(c.Steps)))))
			return nil
		})
	}
}

// stretchUpdates sets the number of updates and leaves the number of looks at the
// validation part: the more looks, the better the best of them.
func stretchUpdates(c *train.Config, steps int) {
	looks := max(1, c.Steps/max(1, c.EvalEvery))
	setUpdates(c, steps)
	c.EvalEvery = max(1, steps/looks)
	c.SaveEvery = c.EvalEvery
}

// shape is the samples of an update and their length.
type shape struct {
	Batch   int `json:"batch"`
	Context int `json:"context"`
}

// countShapes returns how many of the first updates have each shape.
func countShapes(c *train.Config, first int) map[shape]int {
	updates := map[shape]int{}
	for step := range first {
		batch, context := c.BatchShape(step)
		updates[shape{batch, context}]++
	}
	return updates
}

// sortedShapes returns the shapes of updates by length.
func sortedShapes(updates map[shape]int) []shape {
	return slices.SortedFunc(maps.Keys(updates), func(a, b shape) int { return a.Context - b.Context })
}

// typicalBatch returns a batch of training samples whose lengths are spread as in the task:
// attention skips padding, and softmax saves most by that.
func typicalBatch(src task.Source, of shape) (*model.Batch, error) {
	const draws = 16 // for each sample
	drawer, isDrawn := src.(task.WindowDrawer)
	spec := src.Spec()
	samples := make([]task.Sample, draws*of.Batch)
	for i := range samples {
		var err error
		switch n := spec.Count[task.Train]; {
		case isDrawn && of.Context < spec.Length:
			err = drawer.DrawWindow(&samples[i], of.Context, rng.New(1), uint64(i))
		case n == task.Endless:
			err = src.Sample(&samples[i], task.Train, i)
		default:
			err = src.Sample(&samples[i], task.Train, i%n)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(samples, func(a, b task.Sample) int {
		return len(a.Tokens) + len(a.Values) - len(b.Tokens) - len(b.Values)
	})
	for i := range of.Batch {
		samples[i] = samples[draws*i+draws/2]
	}
	return train.PackBatch(spec, samples[:of.Batch]...), nil
}

// newUpdate returns an update of a model whose samples have the lengths of the task.
func newUpdate(m model.Config, src task.Source, of shape) (*bench.Update, error) {
	u, err := bench.NewUpdate(m, of.Batch, 1)
	if err != nil {
		return nil, err
	}
	b, err := typicalBatch(src, of)
	if err != nil {
		return nil, err
	}
	u.SetBatch(b)
	return u, nil
}

// measureRatio returns the time of softmax's training over the time of c's, both of c's
// updates.
func (l *lesson) measureRatio(w *Work, c *train.Config, src task.Source) (float64, error) {
	base := l.configFor(&softmax, c.Seed, 1)
	base.Folder = c.Folder
	full, _, err := c.PrepareTask(src)
	if err != nil {
		return 0, err
	}
	updates := countShapes(&full, c.Steps)
	shapes := sortedShapes(updates)
	var total [2]float64
	for _, s := range shapes {
		var list []timed
		for i, of := range []*train.Config{&base, c} {
			ready, prepared, err := of.PrepareTask(src)
			if err != nil {
				return 0, err
			}
			m := ready.Model
			if s.Context > 0 {
				m.Context = s.Context
			}
			name := []string{softmax.Label, m.Mechanism}[i]
			line := bench.Line{Mechanism: m.Mechanism, Order: m.Order, Direction: "update", N: m.Context, Heads: m.Heads, D: m.Width / max(m.Heads, 1)}
			list = append(list, timed{name, i, bench.NewCase(line, m.TrainFLOPs(float64(s.Batch*m.Context)), 64*float64(s.Batch*m.Context*m.Layers*m.Width), func() (func() error, error) {
				u, err := newUpdate(m, prepared, shape{s.Batch, m.Context})
				if err != nil {
					return nil, err
				}
				return u.Run, nil
			})})
		}
		times, err := w.race(list, equalRace, time.Hour)
		if err != nil {
			return 0, err
		}
		for i, t := range times {
			if t.Ms <= 0 {
				return 0, fmt.Errorf("%s at %d tokens: its update was not timed: %s", t.Curve, s.Context, t.Skipped)
			}
			total[i] += float64(updates[s]) * t.Ms
		}
	}
	return total[0] / total[1], nil
}

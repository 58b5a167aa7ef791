package train

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/farfield-ml/farfield/internal/tensorboard"
)

// Step is a row of metrics.jsonl: one update.
type Step struct {
	Step     int     `json:"step"` // counted from 1
	Loss     float64 `json:"loss"` // mean over targets, before the update: nats, or squares
	Bits     float64 `json:"bits_per_byte,omitempty"`
	Aux      float64 `json:"aux,omitempty"` // what mechanisms lose of their own, beside Loss
	Rate     float64 `json:"lr"`
	GradNorm float64 `json:"grad_norm"`    // before clipping
	Speed    float64 `json:"tokens_per_s"` // positions of this step, padding too
	Elapsed  float64 `json:"elapsed_s"`    // training and evaluation so far, interruptions left out
}

// Eval is a row of metrics.jsonl: one look at a part that is not learned from.
type Eval struct {
	Step  int    `json:"step"`
	Eval  string `json:"eval"`  // Look, or at the end Part or Whole
	Split string `json:"split"` // valid or test
	Score
	Elapsed float64 `json:"elapsed_s"`
}

// How much of a split an Eval is of.
const (
	Look  = "look" // Config.EvalSamples, while the model learns
	Part  = "part" // Config.FinalSamples
	Whole = "whole"
)

// perByte turns nats per token into bits per byte.
func perByte(nats float64, tokens, bytes int64) float64 {
	return nats / math.Ln2 * float64(tokens) / float64(bytes)
}

// ReadMetrics returns the updates and evaluations of the run in the folder dir.
func ReadMetrics(dir string) (steps []Step, evals []Eval, err error) {
	path := filepath.Join(dir, metricsFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	const longest = 1 << 16
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longest)
	for n := 1; lines.Scan(); n++ {
		var kind struct{ Eval *string }
		if err = json.Unmarshal(lines.Bytes(), &kind); err == nil && kind.Eval != nil {
			evals = append(evals, Eval{})
			err = json.Unmarshal(lines.Bytes(), &evals[len(evals)-1])
		} else if err == nil {
			steps = append(steps, Step{})
			err = json.Unmarshal(lines.Bytes(), &steps[len(steps)-1])
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return steps, evals, nil
}

// tail is a file that grows, of a length that a checkpoint knows.
type tail struct {
	f    *os.File
	size int64
}

// openTail opens a file and cuts off what was written after its first size bytes.
func openTail(path string, size int64) (*tail, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.Size() < size:
		err = fmt.Errorf("%s: has %d bytes, had %d when the checkpoint was made", path, info.Size(), size)
	default:
		err = f.Truncate(size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &tail{f, size}, nil
}

func (t *tail) add(text []byte) error {
	n, err := t.f.WriteAt(text, t.size)
	t.size += int64(n)
	return err
}

// metrics are the files of what a run measures. A nil *metrics keeps nothing.
type metrics struct {
	rows   *tail // metrics.jsonl
	events *tail // the same for TensorBoard
}

// openMetrics opens the files, of which the first bytes are kept.
func openMetrics(dir string, rows, events int64) (*metrics, error) {
	r, err := openTail(filepath.Join(dir, metricsFile), rows)
	if err != nil {
		return nil, err
	}
	e, err := openTail(filepath.Join(dir, eventsFile), events)
	if err != nil {
		r.f.Close()
		return nil, err
	}
	m := &metrics{r, e}
	if events == 0 {
		if err := e.add(tensorboard.AppendHeader(nil, now())); err != nil {
			m.close()
			return nil, err
		}
	}
	return m, nil
}

// now is the time in seconds since 1970.
func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

// step appends an update.
func (m *metrics) step(s *Step) error {
	if m == nil {
		return nil
	}
	list := []tensorboard.Scalar{{Tag: "train/loss", Value: s.Loss}, {Tag: "train/lr", Value: s.Rate}, {Tag: "train/grad_norm", Value: s.GradNorm}}
	if s.Bits > 0 {
		list = append(list, tensorboard.Scalar{Tag: "train/bits_per_byte", Value: s.Bits})
	}
	return m.add(s, s.Step, list)
}

// eval appends an evaluation.
func (m *metrics) eval(v *Eval) error {
	if m == nil {
		return nil
	}
	list := []tensorboard.Scalar{{Tag: v.Split + "/loss", Value: v.Loss}, {Tag: v.Split + "/" + string(v.Metric), Value: v.Value}}
	if v.Bits > 0 {
		list = append(list, tensorboard.Scalar{Tag: v.Split + "/bits_per_byte", Value: v.Bits})
	}
	return m.add(v, v.Step, list)
}

func (m *metrics) add(row any, step int, list []tensorboard.Scalar) error {
	text, err := json.Marshal(row)
	if err != nil {
		return err
	}
	if err := m.rows.add(append(text, '\n')); err != nil {
		return err
	}
	return m.events.add(tensorboard.AppendScalars(nil, now(), int64(step), list...))
}

// sync brings all rows to the disk and returns the lengths of the files.
func (m *metrics) sync() (rows, events int64, err error) {
	if m == nil {
		return 0, 0, nil
	}
	if err := m.rows.f.Sync(); err != nil {
		return 0, 0, err
	}
	return m.rows.size, m.events.size, m.events.f.Sync()
}

func (m *metrics) close() error {
	if m == nil {
		return nil
	}
	err := m.events.f.Close()
	if e := m.rows.f.Close(); e != nil {
		err = e
	}
	return err
}

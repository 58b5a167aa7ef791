package train

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/tensorboard"
)

// Step is a row of metrics.jsonl: one update.
type Step struct {
	Step     int     `json:"step"` // counted from 1
	Loss     float64 `json:"loss"` // mean loss over the targets before the update, in nats or squares
	Bits     float64 `json:"bits_per_byte,omitempty"`
	Aux      float64 `json:"aux,omitempty"` // auxiliary loss of the mechanisms, not part of Loss
	Rate     float64 `json:"lr"`
	GradNorm float64 `json:"grad_norm"`    // norm of the gradient before clipping
	Speed    float64 `json:"tokens_per_s"` // positions a second in this step, including padding
	Elapsed  float64 `json:"elapsed_s"`    // seconds of training and evaluation so far, without interruptions
}

// Eval is a row of metrics.jsonl: one evaluation.
type Eval struct {
	Step  int    `json:"step"`
	Eval  string `json:"eval"`  // EvalLook during training, EvalPart or EvalWhole at the end
	Split string `json:"split"` // valid or test
	Score
	Elapsed float64 `json:"elapsed_s"`
}

// Kinds of evaluation, by the part of the split that is scored.
const (
	EvalLook  = "look" // Config.EvalSamples samples, during training
	EvalPart  = "part" // Config.FinalSamples samples, at the end
	EvalWhole = "whole"
)

// perByte converts nats per token to bits per byte.
func perByte(nats float64, tokens, bytes int64) float64 {
	return nats / math.Ln2 * float64(tokens) / float64(bytes)
}

// ReadMetrics returns the updates and evaluations of the run in the folder dir. It returns an error
// where ReadHistory does.
func ReadMetrics(dir string) (steps []Step, evals []Eval, err error) {
	h, err := ReadHistory(dir)
	if err != nil {
		return nil, nil, err
	}
	return h.Steps, h.Evals, nil
}

// growingFile is an append-only file whose length a checkpoint records.
type growingFile struct {
	f    *os.File
	size int64
}

// openGrowingFile opens the file and truncates it to whole rows within the size bytes
// that a checkpoint counts. whole returns the number of bytes in whole rows.
func openGrowingFile(path string, size int64, whole func(io.Reader) (int64, error)) (*growingFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, lock.WrapWriteError(path, err)
	}
	if size > 0 {
		size, err = whole(io.NewSectionReader(f, 0, size))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, lock.WrapWriteError(path, err)
	}
	return &growingFile{f, size}, nil
}

// add appends text to the file, all of it or, with an error, nothing.
func (t *growingFile) add(text []byte) error {
	if _, err := t.f.WriteAt(text, t.size); err != nil {
		t.f.Truncate(t.size) // if this fails too, the next add overwrites what is there
		return lock.WrapWriteError(t.f.Name(), err)
	}
	t.size += int64(len(text))
	return nil
}

// metrics holds the append-only files of a run. A nil *metrics writes nothing.
type metrics struct {
	rows   *growingFile // metrics.jsonl
	events *growingFile // the same for TensorBoard
}

// openMetrics opens the files and keeps their rows up to the checkpoint m. Missing rows,
// or rows cut off at the end, do no further harm: no update depends on them.
func openMetrics(dir string, m *checkpoint.Manifest) (*metrics, error) {
	r, err := openGrowingFile(filepath.Join(dir, metricsFile), m.Metrics, func(in io.Reader) (size int64, err error) {
		err = scanRows(in, func(s *Step, v *Eval, end int64) bool {
			if s != nil && s.Step > m.Step || v != nil && v.Step > m.Step {
				return false
			}
			size = end
			return true
		})
		if err != nil {
			err = fmt.Errorf("%w; without this line, the run goes on", err)
		}
		return size, err
	})
	if err != nil {
		return nil, err
	}
	e, err := openGrowingFile(filepath.Join(dir, eventsFile), m.Events, tensorboard.WholeRecords)
	if err != nil {
		r.f.Close()
		return nil, err
	}
	both := &metrics{r, e}
	if e.size == 0 {
		if err := e.add(tensorboard.AppendHeader(nil, unixSeconds())); err != nil {
			both.close()
			return nil, err
		}
	}
	return both, nil
}

// unixSeconds returns the time in seconds since 1970.
func unixSeconds() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

// addStep appends an update, of a text with its bits.
func (m *metrics) addStep(s *Step, isText bool) error {
	if m == nil {
		return nil
	}
	list := []tensorboard.Scalar{{Tag: "train/loss", Value: s.Loss}, {Tag: "train/lr", Value: s.Rate}, {Tag: "train/grad_norm", Value: s.GradNorm}}
	if isText {
		list = append(list, tensorboard.Scalar{Tag: "train/bits_per_byte", Value: s.Bits})
	}
	return m.addRow(s, s.Step, list)
}

// addEval appends an evaluation.
func (m *metrics) addEval(v *Eval) error {
	if m == nil {
		return nil
	}
	list := []tensorboard.Scalar{{Tag: v.Split + "/loss", Value: v.Loss}, {Tag: v.Split + "/" + string(v.Metric), Value: v.Value}}
	if v.HasBits() {
		list = append(list, tensorboard.Scalar{Tag: v.Split + "/bits_per_byte", Value: v.Bits})
	}
	return m.addRow(v, v.Step, list)
}

// addRow appends a row to both files, or with an error to none.
func (m *metrics) addRow(row any, step int, list []tensorboard.Scalar) error {
	text, err := json.Marshal(row)
	if err != nil {
		return err
	}
	size := m.rows.size
	if err := m.rows.add(append(appendChecksum(text), '\n')); err != nil {
		return err
	}
	err = m.events.add(tensorboard.AppendScalars(nil, unixSeconds(), int64(step), list...))
	if err != nil {
		m.rows.size = size
		m.rows.f.Truncate(size) // if this fails, the next row overwrites this one
	}
	return err
}

// syncFiles flushes all rows to the disk and returns the lengths of the files.
func (m *metrics) syncFiles() (rows, events int64, err error) {
	if m == nil {
		return 0, 0, nil
	}
	for _, t := range []*growingFile{m.rows, m.events} {
		if err := t.f.Sync(); err != nil {
			return 0, 0, lock.WrapWriteError(t.f.Name(), err)
		}
	}
	return m.rows.size, m.events.size, nil
}

// close closes both files.
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

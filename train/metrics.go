package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
)

// Step is a row of metrics.jsonl: one update.
type Step struct {
	Step     int     `json:"step"`          // counted from 1
	Loss     float64 `json:"loss"`          // nats per token, before the update
	Bits     float64 `json:"bits_per_byte"` // the same
	Aux      float64 `json:"aux,omitempty"` // what mechanisms lose of their own, beside Loss
	Rate     float64 `json:"lr"`
	GradNorm float64 `json:"grad_norm"`    // before clipping
	Speed    float64 `json:"tokens_per_s"` // of this step
	Elapsed  float64 `json:"elapsed_s"`    // training and evaluation so far, interruptions left out
}

// Eval is a row of metrics.jsonl: one look at the validation part.
type Eval struct {
	Step int    `json:"step"`
	Eval string `json:"eval"` // how much of it: "windows", the last "part" or the "whole"
	Score
	Elapsed float64 `json:"elapsed_s"`
}

// perByte turns nats per token into bits per byte.
func perByte(nats float64, tokens, bytes int64) float64 {
	return nats / math.Ln2 * float64(tokens) / float64(bytes)
}

// metrics is the file of rows. A nil *metrics keeps none.
type metrics struct {
	f    *os.File
	size int64
}

// openMetrics opens the file and cuts off what was written after its first size
// bytes.
func openMetrics(path string, size int64) (*metrics, error) {
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
	return &metrics{f, size}, nil
}

// add appends a row.
func (m *metrics) add(row any) error {
	if m == nil {
		return nil
	}
	text, err := json.Marshal(row)
	if err != nil {
		return err
	}
	n, err := m.f.WriteAt(append(text, '\n'), m.size)
	m.size += int64(n)
	return err
}

// sync brings all rows to the disk and returns the length of the file.
func (m *metrics) sync() (int64, error) {
	if m == nil {
		return 0, nil
	}
	return m.size, m.f.Sync()
}

func (m *metrics) close() error {
	if m == nil {
		return nil
	}
	return m.f.Close()
}

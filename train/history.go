package train

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// History is what metrics.jsonl of a run tells so far.
type History struct {
	Steps []Step
	Evals []Eval
}

// A file of metrics has at most so many bytes and rows.
const (
	mostMetrics = 1 << 30
	mostRow     = 1 << 16
)

// ReadHistory reads the metrics of the run in the folder dir, also of one that is
// still going on: a last line that has no end yet is left out.
func ReadHistory(dir string) (*History, error) {
	path := filepath.Join(dir, metricsFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > mostMetrics {
		return nil, fmt.Errorf("%s: has more than %d bytes, or %v", path, mostMetrics, err)
	}
	h, err := readHistory(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

func readHistory(r io.Reader) (*History, error) {
	h := new(History)
	in := bufio.NewReaderSize(io.LimitReader(r, mostMetrics), mostRow)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		if err == io.EOF { // what is left is a row in the making
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		var row struct {
			Eval *string `json:"eval"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if row.Eval == nil {
			h.Steps = append(h.Steps, Step{})
			err = json.Unmarshal(line, &h.Steps[len(h.Steps)-1])
		} else {
			h.Evals = append(h.Evals, Eval{})
			err = json.Unmarshal(line, &h.Evals[len(h.Evals)-1])
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/task"
)

// maxScaleBytes bounds the file of scales.
const maxScaleBytes = 1 << 20

// writeScales writes mean and deviation of a task's targets to the folder of a run.
func writeScales(dir string, s *task.Scales) error {
	return atomicfile.Write(filepath.Join(dir, scalesFile), func(w io.Writer) error {
		return json.NewEncoder(w).Encode(s)
	})
}

// readScales reads the file of writeScales; nil if there is none. It returns an error if
// the file is damaged or a deviation is not positive and finite.
func readScales(dir string) (*task.Scales, error) {
	path := filepath.Join(dir, scalesFile)
	s := &task.Scales{}
	err := infile.ReadJSON(path, maxScaleBytes, s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(s.Mean) == 0 || len(s.Mean) != len(s.Deviation) {
		return nil, fmt.Errorf("%s: it has %d means and %d deviations", path, len(s.Mean), len(s.Deviation))
	}
	for i, d := range s.Deviation {
		if !(d > 0) || math.IsInf(d, 0) || s.Mean[i]-s.Mean[i] != 0 {
			return nil, fmt.Errorf("%s: number %d has mean %g and deviation %g", path, i, s.Mean[i], d)
		}
	}
	return s, nil
}

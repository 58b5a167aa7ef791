package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
)

// History is the content of metrics.jsonl.
type History struct {
	Steps []Step
	Evals []Eval
}

// Bounds of a metrics file that ReadHistory reads and of a row, in bytes.
const (
	maxMetricsBytes = 1 << 30
	maxRowBytes     = 1 << 16
)

// ReadHistory reads the metrics of the run in the folder dir, which may be in progress. It skips an
// unfinished last line. It returns an error if the file is missing, too long or has a damaged line.
func ReadHistory(dir string) (*History, error) {
	path := filepath.Join(dir, metricsFile)
	f, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > maxMetricsBytes {
		return nil, fmt.Errorf("%s: has more than %d bytes, or %v", path, maxMetricsBytes, err)
	}
	h, err := readHistory(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// readHistory reads the rows of r, within maxMetricsBytes.
func readHistory(r io.Reader) (*History, error) {
	h := new(History)
	return h, scanRows(io.LimitReader(r, maxMetricsBytes), func(s *Step, v *Eval, _ int64) bool {
		if s != nil {
			h.Steps = append(h.Steps, *s)
		} else {
			h.Evals = append(h.Evals, *v)
		}
		return true
	})
}

// scanRows calls row with each row of r, an update or an evaluation, and the number of
// bytes up to its end, until row returns false. An unfinished last line is left out: its
// writer is still at work, or was killed.
func scanRows(r io.Reader, row func(s *Step, v *Eval, end int64) bool) error {
	in := bufio.NewReaderSize(r, maxRowBytes)
	end := int64(0)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err == bufio.ErrBufferFull {
			err = fmt.Errorf("has more than %d bytes", maxRowBytes)
		}
		end += int64(len(line))
		if err == nil {
			err = verifyChecksum(line)
		}
		var kind struct {
			Eval *string `json:"eval"`
		}
		if err == nil {
			err = json.Unmarshal(line, &kind)
		}
		var s *Step
		var v *Eval
		switch {
		case err != nil:
		case kind.Eval == nil:
			s = new(Step)
			err = json.Unmarshal(line, s)
		default:
			v = new(Eval)
			err = json.Unmarshal(line, v)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if !row(s, v, end) {
			return nil
		}
	}
}

// checksumField begins the last field of a row, the CRC-32C of the row without this
// field.
const checksumField = `,"crc32c":"`

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendChecksum appends to the JSON object text its checksum as the last field.
func appendChecksum(text []byte) []byte {
	sum := crc32.Checksum(text, castagnoli)
	return fmt.Appendf(text[:len(text)-1], `%s%08x"}`, checksumField, sum)
}

// verifyChecksum returns an error if a row does not match its checksum. Rows of earlier
// versions have no checksum and pass.
func verifyChecksum(line []byte) error {
	text := bytes.TrimRight(line, "\r\n")
	i := len(text) - len(checksumField) - len(`01234567"}`)
	if i < 0 || !bytes.HasPrefix(text[i:], []byte(checksumField)) {
		return nil
	}
	sum := crc32.Update(crc32.Checksum(text[:i], castagnoli), castagnoli, []byte("}"))
	if got, want := fmt.Sprintf("%08x", sum), string(text[i+len(checksumField):][:8]); got != want {
		return fault.Mark(fault.ErrDamaged, fmt.Errorf("damaged: its CRC-32C is %s, it says %.8q", got, want))
	}
	return nil
}

package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/infile"
)

// History is what metrics.jsonl of a run tells so far.
type History struct {
	Steps []Step
	Evals []Eval
}

// A file of metrics has at most so many bytes and rows.
const (
	maxMetricsBytes = 1 << 30
	maxRowBytes     = 1 << 16
)

// ReadHistory reads the metrics of the run in the folder dir, also of one that is
// still going on: a last line that has no end yet is left out.
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

func readHistory(r io.Reader) (*History, error) {
	h := new(History)
	return h, scanRows(r, func(s *Step, v *Eval, _ int64) bool {
		if s != nil {
			h.Steps = append(h.Steps, *s)
		} else {
			h.Evals = append(h.Evals, *v)
		}
		return true
	})
}

// scanRows calls row with each row that r has, an update or an evaluation, and how many
// bytes of r end with it, until row returns false. A last line without an end is left
// out: it is being written, or its writer was killed.
func scanRows(r io.Reader, row func(s *Step, v *Eval, end int64) bool) error {
	in := bufio.NewReaderSize(io.LimitReader(r, maxMetricsBytes), maxRowBytes)
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

// checksumField is the last field of a row: the CRC-32C of the row without it.
const checksumField = `,"crc32c":"`

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendChecksum returns the JSON object text with its checksum as the last field.
func appendChecksum(text []byte) []byte {
	sum := crc32.Checksum(text, castagnoli)
	return fmt.Appendf(text[:len(text)-1], `%s%08x"}`, checksumField, sum)
}

// verifyChecksum reports a row that is not what its checksum is of. A row without a checksum
// passes: it is of a version before.
func verifyChecksum(line []byte) error {
	text := bytes.TrimRight(line, "\r\n")
	i := len(text) - len(checksumField) - len(`01234567"}`)
	if i < 0 || !bytes.HasPrefix(text[i:], []byte(checksumField)) {
		return nil
	}
	sum := crc32.Update(crc32.Checksum(text[:i], castagnoli), castagnoli, []byte("}"))
	if got, want := fmt.Sprintf("%08x", sum), string(text[i+len(checksumField):][:8]); got != want {
		return fmt.Errorf("damaged: its CRC-32C is %s, it says %.8q", got, want)
	}
	return nil
}

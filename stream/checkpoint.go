package stream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// A checkpoint is a file, its numbers little-endian:
//
//	"FFSC"          magic
//	uint32          version
//	int64, bytes    the checkpoint in JSON
//	int64, bytes    snapshot of the state
//	uint32          CRC-32C of everything before
const (
	CheckpointMagic   = "FFSC" // how its file begins
	checkpointVersion = 1
)

// checkpoint is a moment that a run can go on from.
type checkpoint struct {
	Bound   []Field  // what it is of
	Rank    int      // whose it is
	Met     bool     // the ranks have exchanged their states
	Pass    int      // that goes on
	At      int64    // tokens of it that the state has met, and the output has
	Input   uint32   // checksum of a pipe's tokens up to there
	Digests []uint32 // of the output of each head of each batch row
	Whole   bool     // all is written, and the output waits for its name

	state []byte
}

// writeFile puts the checkpoint in place of the one before.
func (c *checkpoint) writeFile(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		sum := crc32.New(castagnoli)
		b := binary.LittleEndian.AppendUint32([]byte(CheckpointMagic), checkpointVersion)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(text)))
		b = append(b, text...)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(c.state)))
		both := io.MultiWriter(w, sum)
		if _, err := both.Write(b); err != nil {
			return err
		}
		if _, err := both.Write(c.state); err != nil {
			return err
		}
		_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
		return err
	})
}

// readCheckpoint reads a checkpoint of at most so many bytes, nil where there is
// none.
func readCheckpoint(path string, most int64) (*checkpoint, error) {
	f, err := infile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%s: checkpoint has more than %d bytes, which is too much for a state of this shape", path, most)
	}
	c, err := parseCheckpoint(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parseCheckpoint(b []byte) (*checkpoint, error) {
	if err := checkFrame(b); err != nil {
		return nil, err
	}
	const frame = len(CheckpointMagic) + 4
	body := b[:len(b)-4]
	if err := verifyChecksum(crc32.Checksum(body, castagnoli), b[len(body):]); err != nil {
		return nil, err
	}
	rest := body[frame:]
	var parts [2][]byte
	for i := range parts {
		if len(rest) < 8 {
			return nil, fmt.Errorf("checkpoint: truncated: %d bytes left", len(rest))
		}
		n := binary.LittleEndian.Uint64(rest)
		if rest = rest[8:]; n > uint64(len(rest)) {
			return nil, fmt.Errorf("checkpoint: needs %d bytes more, has %d", n, len(rest))
		}
		parts[i], rest = rest[:n], rest[n:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("checkpoint: %d bytes too many", len(rest))
	}
	c := &checkpoint{state: parts[1]}
	if err := json.Unmarshal(parts[0], c); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return c, nil
}

// CheckpointHeader is what a checkpoint says of a run without its input.
type CheckpointHeader struct {
	Bound []Field                  `json:"bound"` // what the run is of
	Rank  int                      `json:"rank"`
	Pass  int                      `json:"pass"`   // that goes on
	At    int64                    `json:"tokens"` // of it that are done
	Whole bool                     `json:"whole"`  // all is written
	State attention.SnapshotHeader `json:"state"`
}

// maxHeaderBytes bounds the JSON of a checkpoint.
const maxHeaderBytes = 1 << 26

// ReadCheckpointHeader reads the header of the checkpoint that is the size bytes of r,
// all of which it compares with their checksum. The state takes no memory.
func ReadCheckpointHeader(r io.ReaderAt, size int64) (h CheckpointHeader, err error) {
	const frame = len(CheckpointMagic) + 4
	head := make([]byte, frame+8)
	if size < int64(len(head)+8+4) {
		return h, fmt.Errorf("checkpoint: truncated: %d bytes", size)
	}
	if _, err := r.ReadAt(head, 0); err != nil {
		return h, err
	}
	if err := checkFrame(head); err != nil {
		return h, err
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, size-4)); err != nil {
		return h, err
	}
	var end [4]byte
	if _, err := r.ReadAt(end[:], size-4); err != nil && err != io.EOF {
		return h, err
	}
	if err := verifyChecksum(sum.Sum32(), end[:]); err != nil {
		return h, err
	}
	n, left := binary.LittleEndian.Uint64(head[frame:]), uint64(size)-uint64(len(head))-4
	if n > left-8 || n > maxHeaderBytes {
		return h, fmt.Errorf("checkpoint: needs %d bytes more, has %d", n, left-8)
	}
	text := make([]byte, n+8)
	if _, err := r.ReadAt(text, int64(len(head))); err != nil {
		return h, err
	}
	var c checkpoint
	if err := json.Unmarshal(text[:n], &c); err != nil {
		return h, fmt.Errorf("checkpoint: %w", err)
	}
	at := int64(len(head)) + int64(len(text))
	if bytes := binary.LittleEndian.Uint64(text[n:]); bytes != uint64(size-4-at) {
		return h, fmt.Errorf("checkpoint: the state has %d bytes, %d are left", bytes, size-4-at)
	}
	h = CheckpointHeader{Bound: c.Bound, Rank: c.Rank, Pass: c.Pass, At: c.At, Whole: c.Whole}
	h.State, err = attention.ReadSnapshotHeader(io.NewSectionReader(r, at, size-4-at), size-4-at)
	return h, err
}

// checkFrame reports bytes that are not the beginning of a checkpoint of this version.
func checkFrame(b []byte) error {
	if len(b) < len(CheckpointMagic)+4+4 {
		return fmt.Errorf("checkpoint: truncated: %d bytes", len(b))
	}
	if magic := string(b[:len(CheckpointMagic)]); magic != CheckpointMagic {
		return fmt.Errorf("checkpoint: begins with %q, not %q", magic, CheckpointMagic)
	}
	if v := binary.LittleEndian.Uint32(b[len(CheckpointMagic):]); v != checkpointVersion {
		return fmt.Errorf("checkpoint: version is %d, this program reads %d", v, checkpointVersion)
	}
	return nil
}

// verifyChecksum reports a checksum that is not the one at the end of a checkpoint.
func verifyChecksum(got uint32, end []byte) error {
	if want := binary.LittleEndian.Uint32(end); got != want {
		return fmt.Errorf("checkpoint: corrupt or truncated: checksum is %08x, written as %08x", got, want)
	}
	return nil
}

// checkpointPath is the name of the checkpoint of this rank, of before the states are
// exchanged or of after that. Both stay until the end: a rank that is killed between
// needs all others as they were before.
func (r *run[T]) checkpointPath(met bool) string {
	path := r.options.Checkpoint
	if rank := r.options.Ranks.Rank(); rank > 0 {
		path = fmt.Sprintf("%s.%d", path, rank)
	}
	if met {
		path += ".met"
	}
	return path
}

// readOwnCheckpoint reads a checkpoint of this run, nil where there is none.
func (r *run[T]) readOwnCheckpoint(path string) (*checkpoint, error) {
	return readCheckpoint(path, 1<<20+4*r.state.Bytes())
}

// removeCheckpoints removes what there is.
func (r *run[T]) removeCheckpoints() error {
	return errors.Join(removeCheckpoint(r.checkpointPath(true)), removeCheckpoint(r.checkpointPath(false)))
}

// checkRun reports what keeps the checkpoint from being of a run that is bound to want.
func (c *checkpoint) checkRun(want []Field, passes []pass) error {
	for i, f := range want {
		switch {
		case i >= len(c.Bound) || c.Bound[i].Name != f.Name:
			return fmt.Errorf("checkpoint: is of another kind of input: it does not have %s = %s", f.Name, f.Value)
		case c.Bound[i].Value != f.Value:
			return fmt.Errorf("checkpoint: %s is %s, this run has %s", f.Name, c.Bound[i].Value, f.Value)
		}
	}
	if len(c.Bound) > len(want) {
		f := c.Bound[len(want)]
		return fmt.Errorf("checkpoint: is of another kind of input: it has %s = %s", f.Name, f.Value)
	}
	if c.Pass < 0 || c.Pass >= len(passes) {
		return fmt.Errorf("checkpoint: pass is %d, the run has %d", c.Pass, len(passes))
	}
	if n := passes[c.Pass].count; c.At < 0 || n >= 0 && c.At > n {
		return fmt.Errorf("checkpoint: is of %d tokens, the pass has %d", c.At, n)
	}
	return nil
}

// removeCheckpoint removes a checkpoint that may be there.
func removeCheckpoint(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

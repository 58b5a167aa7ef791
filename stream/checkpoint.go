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

	"github.com/farfield-ml/farfield/internal/atomicfile"
)

// A checkpoint is a file, its numbers little-endian:
//
//	"FFSC"          magic
//	uint32          version
//	int64, bytes    the checkpoint in JSON
//	int64, bytes    snapshot of the state
//	uint32          CRC-32C of everything before
const (
	checkpointMagic   = "FFSC"
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

// write puts the checkpoint in place of the one before.
func (c *checkpoint) write(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		sum := crc32.New(castagnoli)
		b := binary.LittleEndian.AppendUint32([]byte(checkpointMagic), checkpointVersion)
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
	f, err := os.Open(path)
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
	const frame = len(checkpointMagic) + 4
	if len(b) < frame+4 {
		return nil, fmt.Errorf("checkpoint: truncated: %d bytes", len(b))
	}
	if magic := string(b[:len(checkpointMagic)]); magic != checkpointMagic {
		return nil, fmt.Errorf("checkpoint: begins with %q, not %q", magic, checkpointMagic)
	}
	if v := binary.LittleEndian.Uint32(b[len(checkpointMagic):]); v != checkpointVersion {
		return nil, fmt.Errorf("checkpoint: version is %d, this program reads %d", v, checkpointVersion)
	}
	body := b[:len(b)-4]
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(b[len(body):]); got != want {
		return nil, fmt.Errorf("checkpoint: corrupt or truncated: checksum is %08x, written as %08x", got, want)
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

// checkpoint is the name of the checkpoint of this rank, of before the states are
// exchanged or of after that. Both stay until the end: a rank that is killed between
// needs all others as they were before.
func (r *run[T]) checkpoint(met bool) string {
	path := r.o.Checkpoint
	if rank := r.o.Ranks.Rank(); rank > 0 {
		path = fmt.Sprintf("%s.%d", path, rank)
	}
	if met {
		path += ".met"
	}
	return path
}

// recall reads a checkpoint of this run, nil where there is none.
func (r *run[T]) recall(path string) (*checkpoint, error) {
	return readCheckpoint(path, 1<<20+4*r.state.Bytes())
}

// forget removes what there is.
func (r *run[T]) forget() error {
	return errors.Join(removeCheckpoint(r.checkpoint(true)), removeCheckpoint(r.checkpoint(false)))
}

// fits reports what keeps the checkpoint from being of a run that is bound to want.
func (c *checkpoint) fits(want []Field, passes []pass) error {
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
	if n := passes[c.Pass].n; c.At < 0 || n >= 0 && c.At > n {
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

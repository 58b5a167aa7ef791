package stream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/infile"
)

// A checkpoint is a file, its numbers little-endian:
//
//	"FFSC"          magic
//	uint32          version
//	int64, bytes    the checkpoint in JSON
//	int64, bytes    snapshot of the state
//	uint32          CRC-32C of everything before
const CheckpointMagic = "FFSC" // first bytes of the file

var checkpointFormat = framed.Format{Name: "checkpoint", Magic: CheckpointMagic, Version: 1, Sum: framed.CRC32C}

// checkpoint is a moment of a run from which it can continue.
type checkpoint struct {
	Bound       []Field  // the run that it belongs to
	Rank        int      // rank that wrote it
	IsExchanged bool     `json:"Met"` // whether the ranks have exchanged their states
	Pass        int      // current pass
	Tokens      int64    `json:"At"` // tokens of the pass in the state and the output
	Input       uint32   // checksum of a pipe's tokens so far
	Digests     []uint32 // digest of the output of each head, [B·H]
	RowDigests  []uint32 `json:",omitempty"` // of the rows in the file, unless it has all
	IsComplete  bool     `json:"Whole"`      // all rows are written, the output is not yet renamed

	state []byte
}

// writeFile replaces the checkpoint file, atomically.
func (c *checkpoint) writeFile(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error { return checkpointFormat.WriteParts(w, text, c.state) })
}

// readCheckpoint reads a checkpoint of at most that many bytes; nil if there is none.
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

// parseCheckpoint decodes a checkpoint file.
func parseCheckpoint(b []byte) (*checkpoint, error) {
	parts, err := checkpointFormat.ReadParts(b, 2)
	if err != nil {
		return nil, err
	}
	c := &checkpoint{state: parts[1]}
	if err := json.Unmarshal(parts[0], c); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return c, nil
}

// CheckpointHeader is the part of a checkpoint that can be read without its input.
type CheckpointHeader struct {
	Bound      []Field                  `json:"bound"` // values that identify the run
	Rank       int                      `json:"rank"`
	Pass       int                      `json:"pass"`   // current pass
	Tokens     int64                    `json:"tokens"` // tokens of the pass that are done
	IsComplete bool                     `json:"whole"`  // whether all rows are written
	State      attention.SnapshotHeader `json:"state"`
}

// maxHeaderBytes bounds the JSON of a checkpoint.
const maxHeaderBytes = 1 << 26

// ReadCheckpointHeader reads the header of the checkpoint in the first size bytes of r, without
// loading its state into memory. It returns an error if the file has another format or version,
// or does not match its checksum.
func ReadCheckpointHeader(r io.ReaderAt, size int64) (h CheckpointHeader, err error) {
	text, at, err := checkpointFormat.ReadFirst(r, size, maxHeaderBytes)
	if err != nil {
		return h, err
	}
	var c checkpoint
	if err := json.Unmarshal(text, &c); err != nil {
		return h, fmt.Errorf("checkpoint: %w", err)
	}
	var length [8]byte
	left := size - int64(checkpointFormat.Sum.Size) - at - int64(len(length))
	if left < 0 {
		return h, errors.New("checkpoint: ends before its state")
	}
	if _, err := r.ReadAt(length[:], at); err != nil {
		return h, err
	}
	if n := binary.LittleEndian.Uint64(length[:]); n != uint64(left) {
		return h, fmt.Errorf("checkpoint: the state has %d bytes, %d are left", n, left)
	}
	at += int64(len(length))
	h = CheckpointHeader{Bound: c.Bound, Rank: c.Rank, Pass: c.Pass, Tokens: c.Tokens, IsComplete: c.IsComplete}
	h.State, err = attention.ReadSnapshotHeader(io.NewSectionReader(r, at, left), left)
	return h, err
}

// checkpointPath returns the path of this rank's checkpoint, before or after the ranks
// exchange their states. Both files stay until the end. A rank killed between them needs
// the checkpoints of all ranks before the exchange.
func (r *run) checkpointPath(met bool) string {
	path := r.options.Checkpoint
	if rank := r.options.Ranks.Rank(); rank > 0 {
		path = fmt.Sprintf("%s.%d", path, rank)
	}
	if met {
		path += ".met"
	}
	return path
}

// readOwnCheckpoint reads a checkpoint of this run; nil if there is none.
func (r *run) readOwnCheckpoint(path string) (*checkpoint, error) {
	return readCheckpoint(path, 1<<20+4*r.state.Bytes())
}

// removeCheckpoints removes the checkpoints of this rank.
func (r *run) removeCheckpoints() error {
	return errors.Join(removeCheckpoint(r.checkpointPath(true)), removeCheckpoint(r.checkpointPath(false)))
}

// checkRun returns an error if the checkpoint does not belong to a run bound to want.
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
	if n := passes[c.Pass].count; c.Tokens < 0 || n >= 0 && c.Tokens > n {
		return fmt.Errorf("checkpoint: is of %d tokens, the pass has %d", c.Tokens, n)
	}
	return nil
}

// discardCheckpoints removes the checkpoints of earlier runs of this rank. It returns a
// BadInput error, and removes nothing, if a file of their names is no checkpoint.
func (r *run) discardCheckpoints() error {
	for _, met := range []bool{true, false} {
		if err := checkMagic(r.checkpointPath(met)); err != nil {
			return &BadInput{err}
		}
	}
	return r.removeCheckpoints()
}

// checkMagic returns an error if the file is neither a checkpoint nor empty. It may be
// absent.
func checkMagic(path string) error {
	f, err := infile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var magic [len(CheckpointMagic)]byte
	n, err := io.ReadFull(f, magic[:])
	switch {
	case err == io.EOF || string(magic[:n]) == CheckpointMagic:
		return nil
	case err != nil && err != io.ErrUnexpectedEOF:
		return err
	}
	return fmt.Errorf("%s: checkpoint: begins with %q, not %q; it is not removed", path, magic[:n], CheckpointMagic)
}

// removeCheckpoint removes a checkpoint file, which may be absent.
func removeCheckpoint(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

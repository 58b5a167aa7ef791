// Package streamfile reads and writes the checkpoints of package stream.
package streamfile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/states"
)

// A checkpoint is a file, its numbers little-endian:
//
//	"FFSC"          magic
//	uint32          version
//	int64, bytes    the checkpoint in JSON
//	int64, bytes    snapshot of the state
//	uint32          CRC-32C of everything before
const Magic = "FFSC" // first bytes of the file

var format = framed.Format{Name: "checkpoint", Magic: Magic, Version: 1, Sum: framed.CRC32C}

// Checkpoint is a moment of a run from which it can continue.
type Checkpoint struct {
	Bound       []comm.Field // the run that it belongs to
	Rank        int          // rank that wrote it
	IsExchanged bool         `json:"Met"` // whether the ranks have exchanged their states
	Pass        int          // current pass
	Tokens      int64        `json:"At"` // tokens of the pass in the state and the output
	Input       uint32       // checksum of a pipe's tokens so far
	Digests     []uint32     // digest of the output of each head, [B·H]
	RowDigests  []uint32     `json:",omitempty"` // of the rows in the file, unless it has all
	IsComplete  bool         `json:"Whole"`      // all rows are written, the output is not yet renamed

	State []byte `json:"-"` // snapshot of the state
}

// WriteFile replaces the checkpoint file, atomically.
func (c *Checkpoint) WriteFile(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error { return format.WriteParts(w, text, c.State) })
}

// ReadFile reads a checkpoint of at most that many bytes; nil if there is none.
func ReadFile(path string, most int64) (*Checkpoint, error) {
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
	c, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse decodes a checkpoint file.
func Parse(b []byte) (*Checkpoint, error) {
	parts, err := format.ReadParts(b, 2)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{State: parts[1]}
	if err := json.Unmarshal(parts[0], c); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return c, nil
}

// Header is the part of a checkpoint that can be read without its input.
type Header struct {
	Bound      []comm.Field  `json:"bound"` // values that identify the run
	Rank       int           `json:"rank"`
	Pass       int           `json:"pass"`   // current pass
	Tokens     int64         `json:"tokens"` // tokens of the pass that are done
	IsComplete bool          `json:"whole"`  // whether all rows are written
	State      states.Header `json:"state"`
}

// maxHeaderBytes bounds the JSON of a checkpoint.
const maxHeaderBytes = 1 << 26

// ReadHeader reads the header of the checkpoint in the first size bytes of r, without
// loading its state into memory. It returns an error if the file has another format or version,
// or does not match its checksum.
func ReadHeader(r io.ReaderAt, size int64) (h Header, err error) {
	text, at, err := format.ReadFirst(r, size, maxHeaderBytes)
	if err != nil {
		return h, err
	}
	var c Checkpoint
	if err := json.Unmarshal(text, &c); err != nil {
		return h, fmt.Errorf("checkpoint: %w", err)
	}
	var length [8]byte
	left := size - int64(format.Sum.Size) - at - int64(len(length))
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
	h = Header{Bound: c.Bound, Rank: c.Rank, Pass: c.Pass, Tokens: c.Tokens, IsComplete: c.IsComplete}
	h.State, err = states.ReadHeader(io.NewSectionReader(r, at, left), left)
	return h, err
}

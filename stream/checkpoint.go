package stream

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/streamfile"
)

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
func (r *run) readOwnCheckpoint(path string) (*streamfile.Checkpoint, error) {
	return streamfile.ReadFile(path, 1<<20+4*r.state.Bytes())
}

// removeCheckpoints removes the checkpoints of this rank.
func (r *run) removeCheckpoints() error {
	return errors.Join(removeCheckpoint(r.checkpointPath(true)), removeCheckpoint(r.checkpointPath(false)))
}

// otherInput returns a fault.ErrInput and ErrMismatch about input that is not that of the checkpoint.
func otherInput(format string, a ...any) error {
	return fault.Mark(fault.ErrInput, fault.Mark(fault.ErrMismatch, fmt.Errorf("input: "+format, a...)))
}

// checkRun returns a fault.ErrMismatch if the checkpoint does not belong to a run bound to want.
func checkRun(c *streamfile.Checkpoint, want []comm.Field, passes []pass) error {
	differs := func(format string, a ...any) error {
		return fault.Mark(fault.ErrMismatch, fmt.Errorf("checkpoint: "+format, a...))
	}
	for i, f := range want {
		switch {
		case i >= len(c.Bound) || c.Bound[i].Name != f.Name:
			return differs("is of another kind of input: it does not have %s = %s", f.Name, f.Value)
		case c.Bound[i].Value != f.Value:
			return differs("%s is %s, this run has %s", f.Name, c.Bound[i].Value, f.Value)
		}
	}
	if len(c.Bound) > len(want) {
		f := c.Bound[len(want)]
		return differs("is of another kind of input: it has %s = %s", f.Name, f.Value)
	}
	if c.Pass < 0 || c.Tokens < 0 {
		return fault.Mark(fault.ErrDamaged, fmt.Errorf("checkpoint: pass is %d, tokens are %d, needs 0 or more", c.Pass, c.Tokens))
	}
	if c.Pass >= len(passes) {
		return differs("pass is %d, the run has %d", c.Pass, len(passes))
	}
	if n := passes[c.Pass].count; n >= 0 && c.Tokens > n {
		return differs("is of %d tokens, the pass has %d", c.Tokens, n)
	}
	return nil
}

// discardCheckpoints removes the checkpoints of earlier runs of this rank. It returns a
// fault.ErrInput, and removes nothing, if a file of their names is no checkpoint.
func (r *run) discardCheckpoints() error {
	for _, met := range []bool{true, false} {
		if err := checkMagic(r.checkpointPath(met)); err != nil {
			return fault.Mark(fault.ErrInput, err)
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
	var magic [len(streamfile.Magic)]byte
	n, err := io.ReadFull(f, magic[:])
	switch {
	case err == io.EOF || string(magic[:n]) == streamfile.Magic:
		return nil
	case err != nil && err != io.ErrUnexpectedEOF:
		return err
	}
	return fmt.Errorf("%s: checkpoint: begins with %q, not %q; it is not removed", path, magic[:n], streamfile.Magic)
}

// removeCheckpoint removes a checkpoint file, which may be absent.
func removeCheckpoint(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/comm/mpi"
)

// join makes the process a rank of the job in which a launcher of MPI has started it;
// alone it returns nil. Ranks of other programs are refused.
func (e *env) join() (*comm.Comm, error) {
	if !mpi.Launched() {
		return nil, nil
	}
	t, err := mpi.Open()
	if err != nil {
		return nil, err
	}
	e.ranks = comm.New(t)
	program, err := programDigest()
	if err = comm.Together(e.ranks, err); err != nil {
		return nil, err
	}
	return e.ranks, comm.Agree(e.ranks,
		comm.Field{Name: "platform", Value: runtime.GOOS + "/" + runtime.GOARCH},
		comm.Field{Name: "program", Value: program},
		comm.Field{Name: "command", Value: fmt.Sprintf("%q", os.Args[1:])},
	)
}

// programDigest is the beginning of the SHA-256 of the program's file.
func programDigest() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

// errEnded is what a rank says that its launcher ends.
var errEnded = errors.New("ended by the launcher: another rank has failed, or the job was cancelled")

// withRanks calls f, which may wait for other ranks, and returns what it returns, or
// errEnded where the launcher ends this process before.
func (e *env) withRanks(f func() error) error {
	if e.ranks == nil {
		return f()
	}
	err := e.interruptible(f)
	if e.ctx.Err() != nil {
		return fmt.Errorf("rank %d: %w", e.ranks.Rank(), errEnded)
	}
	return err
}

// leave ends the process's part in a job. Where the others do not know of err it ends
// the job.
func (e *env) leave(err error) {
	var known *comm.RankError
	switch {
	case e.ranks == nil || e.ctx.Err() != nil: // the thread of MPI may wait for ever
	case err == nil || errors.As(err, &known):
		e.ranks.Close()
	default:
		e.ranks.Abort(err)
	}
}

// first reports whether this process speaks for all ranks.
func (e *env) first() bool { return e.ranks == nil || e.ranks.Rank() == 0 }

// alone reports that no other rank takes part.
func (e *env) alone() bool { return e.ranks == nil || e.ranks.Size() == 1 }

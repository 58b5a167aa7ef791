package env

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/comm/mpi"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Ranked holds the flags of verbs that ranks of mpirun share.
type Ranked struct {
	RankTimeout time.Duration `default:"30m" placeholder:"TIME" help:"End a rank that waits this long; 0: never (30m)."`
}

// JoinRanks makes the process a rank of its job, if a launcher of MPI has started it, and returns
// nil otherwise. It returns an error if the flag of the time limit is negative, MPI cannot be opened, or the
// ranks differ in platform, program or command line.
func (r *Ranked) JoinRanks(e *Env) (*comm.Comm, error) {
	if r.RankTimeout < 0 {
		return nil, InputErrorf("--rank-timeout: %v is negative", r.RankTimeout)
	}
	if !mpi.IsLaunched() {
		return nil, nil
	}
	t, err := mpi.Open(r.RankTimeout)
	if err != nil {
		return nil, err
	}
	e.Ranks = comm.New(t)
	program, err := programDigest()
	if err = comm.ShareError(e.Ranks, err); err != nil {
		return nil, err
	}
	return e.Ranks, comm.CheckAgreement(e.Ranks,
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
	f, err := infile.Open(path)
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

// errEnded is the error of a rank that its launcher ends.
var errEnded = errors.New("ended by the launcher: another rank has failed, or the job was cancelled")

// unanswered adds to an error of ranks that do not answer how to go on.
func unanswered(err error, goOn string) error {
	if !errors.Is(err, comm.ErrNoAnswer) {
		return err
	}
	return fmt.Errorf("%w: its host may be cut off, or it needs a longer --rank-timeout; %s", err, goOn)
}

// RunWithRanks calls f, which may wait for other ranks, and returns its error. If the launcher ends
// this process first, it returns errEnded. goOn says how to continue, for the message.
func (e *Env) RunWithRanks(goOn string, f func() error) error {
	if e.Ranks == nil {
		return f()
	}
	err := unanswered(e.RunInterruptibly(f), goOn)
	if e.Context.Err() != nil {
		e.isWaiting = true
		return fmt.Errorf("rank %d: %w", e.Ranks.Rank(), errEnded)
	}
	return err
}

// endGrace is the time in which f of untilRanksEnd ends where no rank has died and no
// work is long. Open MPI kills a second after it has asked a process to end.
const endGrace = 400 * time.Millisecond

// RunUntilRanksEnd calls f, which ends on all ranks when e.Context ends, and returns its error. If
// that takes more than a moment, it prints the reason and goOn, which says how to continue.
func (e *Env) RunUntilRanksEnd(goOn string, f func() error) error {
	if e.Ranks == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- unanswered(f(), goOn) }()
	select {
	case err := <-done:
		return err
	case <-e.Context.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(endGrace):
	}
	fmt.Fprintf(e.Stderr, "farfield: rank %d: asked to end while it waits for other ranks, of which one may have failed; %s\n", e.Ranks.Rank(), goOn)
	return <-done
}

// LeaveRanks ends this process's part in a job. If the other ranks do not know of err, it ends the
// job.
func (e *Env) LeaveRanks(err error) {
	var known *comm.RankError
	switch {
	case e.Ranks == nil || e.isWaiting: // the thread of MPI may wait for ever
	case err == nil || errors.As(err, &known):
		e.Ranks.Close()
	default:
		e.Ranks.Abort(err)
	}
}

// SilenceRanks returns e without output on all ranks except rank 0.
func (e *Env) SilenceRanks() *Env {
	q := *e
	if !e.IsFirst() {
		q.Stdout, q.Stderr, q.IsTerminal = io.Discard, io.Discard, false
	}
	return &q
}

// IsFirst reports whether this process speaks for all ranks.
func (e *Env) IsFirst() bool { return e.Ranks == nil || e.Ranks.Rank() == 0 }
